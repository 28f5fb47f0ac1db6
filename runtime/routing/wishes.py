"""What users wrote on the pod templates of a job: its run time, its data, its project, the GPU model it insists on.

Text that cannot be read, or says something absurd, is ignored and reported, never believed and never an error: a job
must not be harmed by a comment about it. Whether a project exists and whether a GPU model is ours is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from stacks.labels import DATA_SIZE_ANNOTATION, EXPECTED_RUNTIME_ANNOTATION, GPU_LABEL, PROJECT_LABEL
from stacks.quantities import parse_duration, parse_memory

Raw = Mapping[str, Any]
Number = TypeVar("Number", int, float)

BAD_EXPECTED_RUNTIME: Final = "bad-expected-runtime"
BAD_DATA_SIZE: Final = "bad-data-size"
BAD_PROJECT: Final = "bad-project"

LARGEST_DATA_BYTES: Final = 2**50
"""A pebibyte takes a day over 100 Gbit/s: nobody copies more before a job."""

_LONGEST_QUOTE: Final = 80
"""Characters of somebody else's text that are repeated to people."""

Complain = Callable[[str, str], None]
"""Called with one of the reasons above and a sentence for the user."""


def expected_seconds(spec: Raw, complain: Complain) -> float | None:
    """The longest run time written on any pod template, in fleet time."""

    def read(text: object) -> float:
        return parse_duration(text).total_seconds()

    return max(_readable(spec, EXPECTED_RUNTIME_ANNOTATION, read, BAD_EXPECTED_RUNTIME, complain), default=None)


def data_bytes(spec: Raw, complain: Complain) -> int:
    """The most data named on any pod template: the templates of one job read the same data."""

    def read(text: object) -> int:
        size = parse_memory(text)
        if not 0 <= size <= LARGEST_DATA_BYTES:
            raise ValueError("must be from 0 to 1Pi, for example 200Gi")
        return size

    return max(_readable(spec, DATA_SIZE_ANNOTATION, read, BAD_DATA_SIZE, complain), default=0)


def project(spec: Raw, complain: Complain) -> str:
    """The project that the job names; empty for none. Templates that name different ones are reported; the first in
    the alphabet counts, so that somebody pays.
    """  # noqa: D205
    named = {str(text) for text in _labels(spec) if text}
    if len(named) > 1:
        complain(BAD_PROJECT, f"{PROJECT_LABEL}: pod templates name several projects, {_quoted(sorted(named))}")
    return min(named, default="")


def gpu(spec: Raw) -> str | None:
    """The GPU model that a node must have by the job's own selectors; several are joined, and no flavor has them."""
    insisted = {str(model) for pod_set in spec["podSets"] if (model := _selected(pod_set["template"]["spec"]))}
    return " and ".join(sorted(insisted)) or None


def _readable(
    spec: Raw, annotation: str, read: Callable[[object], Number], reason: str, complain: Complain
) -> Iterator[Number]:
    for pod_set in spec["podSets"]:
        annotations = (pod_set["template"].get("metadata") or {}).get("annotations") or {}
        if (text := annotations.get(annotation)) is None:
            continue
        try:
            yield read(text)
        except ValueError as error:
            complain(reason, f"{annotation}: {error} (got {_quoted(text)}); ignored")


def _labels(spec: Raw) -> Iterator[object]:
    for pod_set in spec["podSets"]:
        yield ((pod_set["template"].get("metadata") or {}).get("labels") or {}).get(PROJECT_LABEL)


def _selected(pod: Raw) -> object:
    if model := (pod.get("nodeSelector") or {}).get(GPU_LABEL):
        return model
    affinity = (pod.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    # Any one of the terms is enough for a node, so all of them must insist on the same model.
    models = [_required_model(term.get("matchExpressions") or ()) for term in required.get("nodeSelectorTerms") or ()]
    return models[0] if models and all(model == models[0] for model in models) else None


def _required_model(expressions: Iterable[Raw]) -> object:
    for expression in expressions:
        values = list(expression.get("values") or ())
        if expression.get("key") == GPU_LABEL and expression.get("operator") == "In" and len(values) == 1:
            return values[0]
    return None


def _quoted(value: object) -> str:
    text = repr(str(value)[: _LONGEST_QUOTE + 1]) if not isinstance(value, list) else ", ".join(map(repr, value))
    return text if len(text) <= _LONGEST_QUOTE + 2 else f"{text[:_LONGEST_QUOTE]}…"
