"""Names and labels that components give, in one place, so that two components cannot disagree about one object."""

from __future__ import annotations

from typing import Any, Final

from stacks.labels import MANAGED_BY, MANAGED_BY_LABEL

Manifest = dict[str, Any]
"""A Kubernetes object as it would stand in YAML."""

KUEUE_API: Final = "kueue.x-k8s.io/v1beta2"
"""Group and version of every Kueue object."""


def cohort_of(organization: str) -> str:
    """Name of the organisation's Cohort, the root of the queue tree."""
    return organization


def team_cohort_of(organization: str, team: str) -> str:
    """Name of a team's Cohort; carries the organisation so that a team may share its name."""
    return f"{organization}-{team}"


def manifest(
    api_version: str,
    kind: str,
    name: str,
    *,
    namespace: str | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **body: Any,
) -> Manifest:
    """One object with our labels; `body` holds `spec`, `rules` and whatever else its kind has."""
    metadata: Manifest = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    metadata["labels"] = {MANAGED_BY_LABEL: MANAGED_BY, **(labels or {})}
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **body}
