"""What a drill does to nodes: says a notice, takes machines away, and puts everything back.

Each of these may be repeated. A node that changes in the same moment is read and patched again; an API server that does
not answer is asked again while a drill is cleaned up, since nothing may be left behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from infra.chaos import record as records
from infra.chaos.nodes import drill_notices, noticed, taken_back
from infra.chaos.record import NodeRecord, Record
from infra.chaos.terms import ChaosError
from runtime.errors import Conflict, Forbidden, KubeError, NotFound, Rejected, Unreachable
from runtime.eviction.notice import Notice
from runtime.kube import NODES, PODS, Kube
from stacks.labels import NOTICES_ANNOTATION

_TRIES: Final = 5
"""Kubelets and controllers write nodes every few seconds; five conflicts in a row are no accident."""

_CLEAN_SECONDS: Final = 60.0
"""An API server that restarts is back within this."""

_RETRY_SECONDS: Final = 1.0
_PARALLEL_DELETIONS: Final = 16

Answer = TypeVar("Answer")


async def say_notice(kube: Kube, name: str, notice: Notice) -> None:
    """Write the notice on its node, as the node agent would.

    Raises:
        ChaosError: the node is gone, or may not be written.
    """
    for _ in range(_TRIES):
        try:
            node = await kube.get(NODES, name)
            await kube.send(
                "PATCH", NODES.path(None, name), body=noticed(node, notice), content_type="application/merge-patch+json"
            )
            return
        except Conflict:
            continue
        except NotFound:
            raise ChaosError(f"node {name} went away by itself; run the drill again") from None
        except (Forbidden, Rejected) as error:
            raise ChaosError(
                f"you may not write a notice on node {name}: {error}; a drill takes an administrator, with the right "
                "to patch nodes and to update clusterqueues.kueue.x-k8s.io"
            ) from None
    raise ChaosError(f"node {name} changes faster than it can be patched; the notice was not said")


async def lose(kube: Kube, record: Record, name: str) -> None:
    """Take a machine away: its Node and every pod on it are gone at once, with no grace."""
    await records.mark_removed(kube, record, name)
    pods = await kube.list(PODS, fields=f"spec.nodeName={name}")
    await _gone(kube.send("DELETE", NODES.path(None, name)))
    limit = asyncio.Semaphore(_PARALLEL_DELETIONS)

    async def end(namespace: str, pod: str, uid: str) -> None:
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        async with limit:
            await _gone(kube.send("DELETE", PODS.path(namespace, pod), body=body))

    found = (pod["metadata"] for pod in pods)
    await asyncio.gather(*(end(one["namespace"], one["name"], one["uid"]) for one in found))


async def put_back(kube: Kube, node: NodeRecord) -> str:
    """Make a node what it was before its notice; returns what that took, nothing where it was so already.

    Raises:
        ChaosError: it changes faster than it can be patched, or what stands on it cannot be read.
        KubeError: the API server does not answer, or refuses.
    """
    for _ in range(_TRIES):
        try:
            live = await kube.get(NODES, node.name)
        except NotFound:
            return await _created_again(kube, node)
        patch = taken_back(live, [node.notice])
        if patch is None:
            return ""
        try:
            await kube.send(
                "PATCH", NODES.path(None, node.name), body=patch, content_type="application/merge-patch+json"
            )
            return f"{node.name}: notice taken back"
        except Conflict:
            continue
    raise ChaosError(f"node {node.name} changes faster than it can be patched")


async def clean(kube: Kube, record: Record) -> list[str]:
    """Undo a whole drill and remove its record; returns what was done.

    Raises:
        ChaosError: something of it is left; the record stays, so that it can be tried again.
    """
    present = await _patiently(partial(records.read, kube, record))
    results = await asyncio.gather(
        *(_patiently(partial(put_back, kube, node)) for node in present.nodes), return_exceptions=True
    )
    failed = [
        f"{node.name}: {result}"
        for node, result in zip(present.nodes, results, strict=True)
        if isinstance(result, BaseException)
    ]
    if failed:
        raise ChaosError(
            f"{len(failed)} of {len(results)} nodes of drill {record.run} could not be put back; "
            f"run `gpufleet chaos clean`\n" + "\n".join(failed)
        )
    await _patiently(partial(records.remove, kube, record))
    return [result for result in results if isinstance(result, str) and result]


async def leftovers(kube: Kube, known: Sequence[Record]) -> list[NodeRecord]:
    """Nodes with notices of drills of which no record is left."""
    recorded = {node.notice for record in known for node in record.nodes}
    found: list[NodeRecord] = []
    for raw in await kube.list(NODES):
        if NOTICES_ANNOTATION not in (raw["metadata"].get("annotations") or {}):
            continue
        ids = [one for one in drill_notices(raw) if one not in recorded]
        found.extend(NodeRecord(raw["metadata"]["name"], one) for one in ids)
    return found


async def _created_again(kube: Kube, node: NodeRecord) -> str:
    if not node.removed:
        return ""  # somebody else took it away
    try:
        await kube.send("POST", NODES.path(), body=node.before)
    except Conflict:
        return ""  # it came back by itself
    return f"{node.name}: created again"


async def _gone(deletion: Awaitable[object]) -> None:
    try:
        await deletion
    except (NotFound, Conflict):
        return  # another one has its name by now, or nobody


async def _patiently(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    clock = asyncio.get_running_loop().time
    until = clock() + _CLEAN_SECONDS
    while True:
        try:
            return await ask()
        except Unreachable as error:
            if clock() > until:
                raise ChaosError(f"the API server does not answer: {error}; then run `gpufleet chaos clean`") from None
            await asyncio.sleep(_RETRY_SECONDS)
        except KubeError as error:
            raise ChaosError(f"{error}; run `gpufleet chaos clean` with the rights of an administrator") from None
