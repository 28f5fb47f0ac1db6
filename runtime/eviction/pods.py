"""Reads a pod, as the API server sent it, into the view that evictions are planned from.

A pod's users write most of it: what cannot be read counts as not written, and a hook is called on the pod's own address
alone. It remembers nothing.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from runtime.eviction.marker import answer_from_json, asked_in
from runtime.eviction.view import Answer, PodView
from runtime.routing.requests import gpus_of_pod, holds_gpus
from stacks.labels import (
    CHECKPOINT_ANSWER_ANNOTATION,
    CHECKPOINT_HOOK_ANNOTATION,
    CHECKPOINT_REQUEST_ANNOTATION,
)

Raw = Mapping[str, Any]

WORKLOAD_ANNOTATION: Final = "kueue.x-k8s.io/workload"
"""Kueue's own pod annotation: the Workload, written where topology-aware scheduling is on, as by default."""

PODSET_LABEL: Final = "kueue.x-k8s.io/podset"
"""Kueue's own label on every pod that it let start."""

DEFAULT_GRACE_SECONDS: Final = 30.0
"""terminationGracePeriodSeconds of a pod that says nothing."""

DISRUPTION_ANNOTATION: Final = "karpenter.sh/do-not-disrupt"
"""Karpenter's own pod annotation: it does not drain such a pod."""

_HOOK: Final = re.compile(r"http://:([1-9][0-9]{0,4})(/[!-~]{0,512})?")
_ENDED: Final = ("Succeeded", "Failed")


class SeenPod(NamedTuple):
    """A pod, and the object that it belongs to, which leads to its Workload where the pod does not name it."""

    view: PodView
    owner_uid: str


def read_pod(raw: Raw, namespaces: Mapping[str, str]) -> SeenPod | None:
    """A pod that is bound to a node, until it has ended and left no answer; `namespaces` are ours, each under its name.

    Raises:
        ValueError: when nobody can count its GPUs.
    """
    metadata, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    node, namespace = spec.get("nodeName"), metadata.get("namespace")
    if not isinstance(node, str) or not isinstance(namespace, str):
        return None
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    owner: Raw = next((one for one in metadata.get("ownerReferences") or () if one.get("controller")), {})
    ended = status.get("phase") in _ENDED
    answer = _answer(annotations, status)
    if ended and answer is None:
        return None
    workload = annotations.get(WORKLOAD_ANNOTATION) if PODSET_LABEL in labels else None
    view = PodView(
        uid=str(metadata["uid"]),
        namespace=namespaces.get(namespace, namespace),
        name=str(metadata["name"]),
        node=node,
        gpus=gpus_of_pod(spec) or int(holds_gpus(spec)),
        workload=workload if isinstance(workload, str) else "",
        running=status.get("phase") == "Running",
        grace_seconds=_grace(metadata, spec),
        asked=asked_in(str(annotations.get(CHECKPOINT_REQUEST_ANNOTATION, ""))),
        answer=answer,
        hook=_hook(annotations.get(CHECKPOINT_HOOK_ANNOTATION), status.get("podIP")),
        daemon=owner.get("kind") == "DaemonSet",
        leaving="deletionTimestamp" in metadata,
        ended=ended,
        shielded=annotations.get(DISRUPTION_ANNOTATION) == "true",
        managed=namespace in namespaces,
    )
    return SeenPod(view, str(owner.get("uid", "")))


def _answer(annotations: Raw, status: Raw) -> Answer | None:
    """The newest of what the pod says in its annotation and in the last words of its containers."""
    texts = [annotations.get(CHECKPOINT_ANSWER_ANNOTATION)]
    for container in status.get("containerStatuses") or ():
        for state in (container.get("state") or {}, container.get("lastState") or {}):
            texts.append((state.get("terminated") or {}).get("message"))
    found = []
    for text in texts:
        if isinstance(text, str) and text:
            try:
                found.append(answer_from_json(text))
            except ValueError:
                continue  # most termination messages are no answers
    return max(found, key=lambda answer: answer.at, default=None)


def _grace(metadata: Raw, spec: Raw) -> float:
    value = metadata.get("deletionGracePeriodSeconds", spec.get("terminationGracePeriodSeconds"))
    return float(value) if isinstance(value, int) and value >= 0 else DEFAULT_GRACE_SECONDS


def _hook(declared: object, address: object) -> str:
    """Where the pod takes requests: on its own address alone, whatever the annotation says."""
    found = _HOOK.fullmatch(declared) if isinstance(declared, str) else None
    if found is None or int(found[1]) > 65_535 or not isinstance(address, str):
        return ""
    try:
        host = ipaddress.ip_address(address)
    except ValueError:
        return ""
    return f"http://{f'[{host}]' if host.version == 6 else host}:{found[1]}{found[2] or '/'}"
