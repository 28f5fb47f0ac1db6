"""Where the ledger of a cluster is: a bucket, a directory, or the volume of the embedded stack.

They use the caller's own credentials and claim nothing. A volume of a real cluster is mounted by the agent alone; the
message says how to copy what is on it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from infra.commands.cluster import Cluster, connect, read_cluster
from infra.commands.places import checkout
from infra.local.errors import LocalError
from infra.local.state import State
from runtime.clock import Clock
from runtime.store import Bucket, Store
from stacks.agent import ObjectStoreLedger
from stacks.agent_config import LEDGER_MOUNT, AgentConfig
from stacks.labels import AGENT_NAME, SYSTEM_NAMESPACE

LedgerUrl = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        metavar="URL",
        help="Ledger to read: s3://, gs://, az:// or file://. Default: that of the connected cluster.",
    ),
]


class LedgerError(LocalError):
    """The ledger cannot be reached from here, or cannot be used for what was asked."""


@dataclass(frozen=True)
class FoundLedger:
    """A ledger, with what the cluster says of its fleet."""

    bucket: Bucket
    config: AgentConfig
    clock: Clock


async def ledger_of_cluster(stack: str, url: str | None) -> FoundLedger:
    """The ledger of the connected cluster, or the one at `url`, with the cluster's configuration and clock.

    Raises:
        LedgerError: it is on a volume that only the agent reaches, or is not there.
        NotDeployedError: the cluster cannot be read.
    """
    async with connect(stack) as connection:
        cluster = await read_cluster(connection)
    bucket = _existing(Bucket(url)) if url else bucket_in(cluster, stack)
    return FoundLedger(bucket, cluster.config, cluster.clock)


def bucket_in(cluster: Cluster, stack: str) -> Bucket:
    """The ledger of a cluster that was read already.

    Raises:
        LedgerError: it is on a volume that only the agent reaches, or is not there.
    """
    return _existing(Bucket(_url(cluster, stack)))


async def bucket_of(stack: str, url: str | None) -> Bucket:
    """The ledger alone; with `url` no cluster is asked.

    Raises:
        LedgerError: it is on a volume that only the agent reaches, or is not there.
        NotDeployedError: the cluster cannot be read.
    """
    return _existing(Bucket(url)) if url else (await ledger_of_cluster(stack, None)).bucket


async def reader_of(found: FoundLedger) -> Store:
    """The ledger as the agent reads it: what counts now.

    Raises:
        LedgerError: so much of it is damaged that the agent moves no money either.
        StoreDown: it cannot be read.
    """
    store = Store(found.bucket.url, found.clock, None)
    await store.refresh()
    if store.books is None:
        raise LedgerError(
            "a part of the ledger that counts now cannot be read, so the agent starts nothing in the cloud; "
            "`gpufleet ledger verify` says what and how to mend it"
        )
    return store


def _url(cluster: Cluster, stack: str) -> str:
    ledger = cluster.config.ledger
    if isinstance(ledger, ObjectStoreLedger):
        return ledger.url
    root = State.directory(checkout(), stack)
    kubeconfig, asked = root / "kubeconfig", os.environ.get("KUBECONFIG")
    if kubeconfig.is_file() and (not asked or Path(asked).resolve() == kubeconfig.resolve()):
        return (root / "volumes" / SYSTEM_NAMESPACE / AGENT_NAME).as_uri()
    raise LedgerError(
        f"the ledger is on the volume of {SYSTEM_NAMESPACE}/{AGENT_NAME}, which only the agent reaches; copy it and "
        "name the copy:\n"
        f'  kubectl exec -n {SYSTEM_NAMESPACE} deploy/{AGENT_NAME} -- python -c "import sys, tarfile; '
        f"tarfile.open(fileobj=sys.stdout.buffer, mode='w|').add('{LEDGER_MOUNT}', 'ledger')\" | tar -xf -\n"
        '  gpufleet … --ledger "file://$PWD/ledger"\n'
        "what is changed in the copy changes nothing in the cluster"
    )


def _existing(bucket: Bucket) -> Bucket:
    if bucket.is_missing():
        raise LedgerError(f"there is no ledger at {bucket.url}; it is made when the agent first runs")
    return bucket
