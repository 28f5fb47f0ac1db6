"""Which Kubernetes clusters the fleet uses, and how Pulumi reaches them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from stacks.model import Model


class KubeconfigSecret(Model):
    """A kubeconfig kept as a Pulumi secret beside the fleet object."""

    secret: str
    """Name of the sibling secret, set by `pulumi config set --secret gpufleet:NAME`."""


class KubeconfigContext(Model):
    """A context of the ambient kubeconfig, for people who already use kubectl."""

    context: str
    """Name of the context."""


class ExistingCluster(Model):
    """A cluster that somebody else created; gpufleet adds its objects to it and never deletes it."""

    kind: Literal["existing"]
    """`existing`: the cluster is there already, with Kueue installed."""

    kubeconfig: KubeconfigSecret | KubeconfigContext | None = None
    """Where the credentials are. Default: the ambient kubeconfig (`KUBECONFIG`), as kubectl would use it."""


Cluster = Annotated[ExistingCluster, Field()]
"""One cluster. Only `existing` clusters so far."""
