"""Names that Kubernetes accepts: object names, label keys and values, references to a workload.

Names are never repaired: a changed name would be another object. The error offers the nearest legal one instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import BeforeValidator, PlainSerializer, PlainValidator, WithJsonSchema

from stacks.quantities.text import text_of, text_schema
from stacks.suggest import did_you_mean

_KUBE_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_DNS_PART: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_NAME: Final = re.compile(rf"{_DNS_PART}(\.{_DNS_PART})*")
_LONGEST_DNS_NAME: Final = 253  # RFC 1123
_LABEL: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_HELP: Final = "1 to 63 of a-z, A-Z, 0-9, '-', '_' and '.', a letter or digit at both ends"
_HINT_LENGTH: Final = 63
_KINDS: Final = {
    "deployment": "deployment", "deployments": "deployment", "deploy": "deployment",
    "statefulset": "statefulset", "statefulsets": "statefulset", "sts": "statefulset",
}  # fmt: skip


def parse_kube_name(value: object) -> str:
    """Check an RFC 1123 label, the form Kubernetes asks of names that become labels and namespaces.

    Raises:
        ValueError: naming the form and the nearest legal name.
    """
    if not isinstance(value, str):
        raise ValueError("must be text; quote it if it looks like a number")
    if not _KUBE_NAME.fullmatch(value):
        hint = re.sub(r"[^a-z0-9]+", "-", value[: 2 * _HINT_LENGTH].lower()).strip("-")[:_HINT_LENGTH].rstrip("-")
        fix = f"; try {hint}" if hint else ""
        raise ValueError(f"not a Kubernetes name (1 to 63 of a-z, 0-9 and '-', no '-' at the ends){fix}")
    return value


def parse_kube_dns_name(value: object) -> str:
    """Check an RFC 1123 subdomain, the form of most object names: names joined by dots, up to 253 characters.

    Raises:
        ValueError: naming the form and the nearest legal name.
    """
    text = text_of(value, "a Kubernetes name", "llm-inference")
    if len(text) > _LONGEST_DNS_NAME or not _DNS_NAME.fullmatch(text):
        parts = (part.strip("-") for part in re.sub(r"[^a-z0-9.]+", "-", text.lower()).split("."))
        hint = ".".join(part for part in parts if part)[:_HINT_LENGTH].rstrip("-.")
        raise ValueError(
            "not a Kubernetes name (up to 253 of a-z, 0-9, '-' and '.', a letter or digit at both ends of each part); "
            f"try {hint or 'llm-inference'}"
        )
    return text


@dataclass(frozen=True, slots=True, order=True)
class WorkloadReference:
    """A workload of the cluster by kind (lower case) and name."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


def parse_object_reference(value: object) -> WorkloadReference:
    """Read `deployment/llm-inference`; the kind in any case, or as kubectl shortens it.

    Raises:
        ValueError: for another form, another kind, or a wrong name.
    """
    if isinstance(value, WorkloadReference):
        return value
    kind, slash, name = text_of(value, "a workload as kind/name", "deployment/llm-inference").partition("/")
    if not slash or "/" in name:
        raise ValueError("write a workload as kind/name, for example deployment/llm-inference")
    if kind.strip().lower() not in _KINDS:
        hint = did_you_mean(kind, set(_KINDS.values()))
        raise ValueError(f"{kind[:_HINT_LENGTH]!r} cannot be scaled{hint}; write it like deployment/llm-inference")
    return WorkloadReference(_KINDS[kind.strip().lower()], parse_kube_dns_name(name))


KubeName = Annotated[
    str,
    BeforeValidator(parse_kube_name),
    WithJsonSchema({"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"}),
]
"""A name that Kubernetes accepts as a namespace, label value and object name."""

KubeDnsName = Annotated[
    str,
    PlainValidator(parse_kube_dns_name),
    text_schema("A Kubernetes object name.", ["llm-inference", "crd.example.com"], r"^\s*[a-z0-9][-a-z0-9.]*\s*$"),
]
"""A name that Kubernetes accepts for most objects (RFC 1123 subdomain)."""

ObjectReference = Annotated[
    WorkloadReference,
    PlainValidator(parse_object_reference),
    PlainSerializer(str, return_type=str),
    text_schema(
        "A workload that can be scaled, as kind/name.", ["deployment/llm-inference"], r"^\s*[A-Za-z]+\s*/\s*\S+\s*$"
    ),
]
"""A Deployment or StatefulSet; canonical form `deployment/llm-inference`."""
