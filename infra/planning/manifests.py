"""The files of a fleet for a GitOps tool: one per object, and a kustomization.yaml that lists them.

Names are safe on every file system and depend on the object alone, so that a change of the fleet shows as a change of
few files. It writes nothing; `infra.planning.folder` does.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import yaml

from infra.planning.objects import Identity, Manifest, identity

KUSTOMIZATION: Final = "kustomization.yaml"

_UNSAFE: Final = re.compile(r"[^a-z0-9.-]+")
_LONGEST_NAME: Final = 200  # characters; file systems take 255, and tools add endings of their own
_DIGEST_LENGTH: Final = 8
_MISREAD: Final = re.compile(r"[0-9.+-]|[yYnN]\Z")
"""Begins of texts that PyYAML may write bare and kubectl's parser may take for a number (`1e3`) or a truth (`y`)."""


def yaml_of(manifests: Sequence[Manifest]) -> str:
    """The objects as one stream of YAML documents."""
    return yaml.dump_all(manifests, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)


def files_of(manifests: Sequence[Manifest], origin: str) -> dict[str, str]:
    """The text of every file by its name, in the order of creation, the kustomization last."""
    head = f"# Rendered by gpufleet from {origin}; change that file instead of this one.\n"
    names = _names([identity(manifest) for manifest in manifests])
    files = {name: head + yaml_of([one]) for name, one in zip(names, manifests, strict=True)}
    kustomization: dict[str, Any] = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "sortOptions": {"order": "fifo"},  # kustomize's own order knows nothing of Kueue's kinds
        "resources": list(files),
    }
    return {**files, KUSTOMIZATION: head + yaml_of([kustomization])}


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, and a value that occurs twice twice, as people would."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else "'" if _MISREAD.match(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _names(identities: Sequence[Identity]) -> list[str]:
    """`<kind>-<namespace>-<name>.yaml`; where that does not tell two objects apart, with a digest of which it is."""
    plain = ["-".join(part for part in (one.kind, one.namespace, one.name) if part).lower() for one in identities]
    safe = [_UNSAFE.sub("-", name).strip(".-")[:_LONGEST_NAME] for name in plain]
    taken = Counter([*safe, KUSTOMIZATION.removesuffix(".yaml")])
    return [
        f"{name}.yaml" if name == whole and taken[name] == 1 else f"{name}-{_digest(one)}.yaml"
        for name, whole, one in zip(safe, plain, identities, strict=True)
    ]


def _digest(one: Identity) -> str:
    return hashlib.sha256("\0".join(one).encode()).hexdigest()[:_DIGEST_LENGTH]
