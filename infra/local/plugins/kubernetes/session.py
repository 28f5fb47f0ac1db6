"""The cluster that one configured provider talks to, opened when it is first needed.

Opening late keeps `pulumi preview` of a stack without Kubernetes objects free of a kubeconfig, as with the official
provider. Invariant: a kubeconfig that cannot be used fails every call that needs it with the same text.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from infra.local.plugins.kubernetes import kubeconfig
from infra.local.plugins.kubernetes.client import KubeClient
from infra.local.plugins.kubernetes.discovery import Discovery
from infra.local.plugins.kubernetes.objects import Objects
from infra.local.plugins.kubernetes.patches import Patches

# The official provider's switch: forget objects of a cluster that is gone instead of failing to delete them.
DELETE_UNREACHABLE = "PULUMI_K8S_DELETE_UNREACHABLE"


@dataclass(frozen=True)
class Settings:
    """The provider's arguments that this provider honours."""

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    delete_unreachable: bool = False

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Settings:
        """Read the arguments as the engine sends them (booleans may be the texts "true" and "false")."""
        forget = arguments.get("deleteUnreachable") or os.environ.get(DELETE_UNREACHABLE, "")
        texts = {name: str(arguments[name]) for name in ("kubeconfig", "context", "namespace") if arguments.get(name)}
        return cls(**texts, delete_unreachable=str(forget).lower() == "true")


class Session:
    """What the calls of one provider share."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @cached_property
    def client(self) -> KubeClient:
        """The connection."""
        chosen = self.settings
        return KubeClient(kubeconfig.load(chosen.kubeconfig, chosen.context, chosen.namespace))

    @cached_property
    def discovery(self) -> Discovery:
        """The kinds that the cluster serves."""
        return Discovery(self.client)

    @cached_property
    def objects(self) -> Objects:
        """The cluster's objects."""
        return Objects(self.client, self.discovery, self.default_namespace)

    @cached_property
    def patches(self) -> Patches:
        """The patches on the cluster's objects."""
        return Patches(self.objects)

    @property
    def default_namespace(self) -> str:
        """Where an object without a namespace goes."""
        return self.client.cluster.namespace

    def cancel(self) -> None:
        """End every wait; nothing to do while nothing was opened."""
        if "client" in self.__dict__:
            self.client.cancel()
