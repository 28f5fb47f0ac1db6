"""What an object must look like before its dependents may start: parsed from annotations, judged on plain manifests.

It does not wait (see `waiting`). A condition answers with one line for the user, so that every wait can say what it
saw last. Invariant: a status that describes an older generation of the object never satisfies a condition.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from infra.local.plugins.kubernetes.errors import ConditionSyntaxError
from infra.local.plugins.kubernetes.identity import annotation

# The official provider's annotations (pulumi-kubernetes, provider/pkg/metadata/annotations.go).
WAIT_FOR = "pulumi.com/waitFor"
SKIP_AWAIT = "pulumi.com/skipAwait"
TIMEOUT_SECONDS = "pulumi.com/timeoutSeconds"
DEFAULT_TIMEOUT_SECONDS = 600.0

_SYNTAX = (
    'expected "condition=TYPE", "condition=TYPE=STATUS", "jsonpath={.a.b[0]}", "jsonpath={.a.b}=VALUE", '
    "or a JSON array of these"
)
_CONDITION = re.compile(r"condition=(?P<type>[^=]+?)(=(?P<status>[^=]+))?")
_PATH = re.compile(r"jsonpath=(?P<quote>['\"]?)\{(?P<path>[^{}]+)\}(?P=quote)(=(?P<value>.*))?")
_STEP = re.compile(r"\.(?P<name>[\w-]+)|\[(?P<index>\d+)\]|\['(?P<quoted>[^']+)'\]")


@dataclass(frozen=True)
class Verdict:
    """Whether a condition holds, and what was seen."""

    holds: bool
    seen: str


@dataclass(frozen=True)
class Condition:
    """One thing to wait for; `text` is how the user knows it."""

    text: str
    judge: Callable[[Mapping[str, Any]], Verdict]


def conditions_of(manifest: Mapping[str, Any]) -> list[Condition]:
    """What to wait for after this object is written.

    Raises:
        ConditionSyntaxError: an annotation cannot be read.
    """
    if annotation(manifest, SKIP_AWAIT) == "true":
        return []
    if (text := annotation(manifest, WAIT_FOR)) is not None:
        return [_parse(entry) for entry in _entries(text)]
    judge = _BY_KIND.get((str(manifest.get("apiVersion")).rpartition("/")[0], str(manifest.get("kind"))))
    return [judge] if judge else []


def timeout_of(manifest: Mapping[str, Any]) -> float:
    """How many seconds to wait.

    Raises:
        ConditionSyntaxError: the annotation is not a positive number.
    """
    text = annotation(manifest, TIMEOUT_SECONDS)
    if text is None:
        return DEFAULT_TIMEOUT_SECONDS
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ConditionSyntaxError(f"annotation {TIMEOUT_SECONDS} is {text!r}, expected a positive number of seconds")
    return seconds


def _entries(text: str) -> list[str]:
    if not text.lstrip().startswith("["):
        return [text]
    try:
        entries = json.loads(text)
    except ValueError:
        entries = None
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, str) for entry in entries):
        raise ConditionSyntaxError(f"annotation {WAIT_FOR} is {text!r}, {_SYNTAX}")
    return entries


def _parse(text: str) -> Condition:
    if match := _CONDITION.fullmatch(text.strip()):
        return _status_condition(text, match["type"].strip(), (match["status"] or "True").strip())
    match = _PATH.fullmatch(text.strip())
    steps = _steps(match["path"]) if match else None
    if match is None or steps is None:
        raise ConditionSyntaxError(f"annotation {WAIT_FOR} asks for {text!r}, {_SYNTAX}")
    return _path_condition(text, steps, match["value"])


def _steps(path: str) -> list[str | int] | None:
    """The keys and indexes of a path such as `.status.loadBalancer['a.b'][0]`, or None if it is not one."""
    steps: list[str | int] = []
    position = 0
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            return None
        steps.append(int(match["index"]) if match["index"] else match["name"] or match["quoted"])
        position = match.end()
    return steps


def _is_current(manifest: Mapping[str, Any], observed: Any) -> bool:
    generation = manifest.get("metadata", {}).get("generation")
    return observed is None or generation is None or observed >= generation


def _status_condition(text: str, wanted_type: str, wanted_status: str) -> Condition:
    def judge(manifest: Mapping[str, Any]) -> Verdict:
        status = manifest.get("status") or {}
        for condition in status.get("conditions") or []:
            if str(condition.get("type")).lower() == wanted_type.lower():
                observed = condition.get("observedGeneration", status.get("observedGeneration"))
                if not _is_current(manifest, observed):
                    return Verdict(False, f"{wanted_type} describes an older generation of the object")
                holds = str(condition.get("status")).lower() == wanted_status.lower()
                parts = [str(condition.get(part)) for part in ("reason", "message") if condition.get(part)]
                return Verdict(holds, f"{wanted_type}={condition.get('status')}: {': '.join(parts)}".rstrip(": "))
        return Verdict(False, f"the object has no condition {wanted_type} yet")

    return Condition(text, judge)


def _path_condition(text: str, steps: list[str | int], wanted: str | None) -> Condition:
    def judge(manifest: Mapping[str, Any]) -> Verdict:
        value: Any = manifest
        for step in steps:
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                return Verdict(False, "the field is not there yet")
        found = value if isinstance(value, str) else json.dumps(value)
        return Verdict(wanted is None or found == wanted, f"the field is {found}")

    return Condition(text, judge)


def _judge_deployment(manifest: Mapping[str, Any]) -> Verdict:
    wanted = manifest.get("spec", {}).get("replicas", 1)
    status = manifest.get("status") or {}
    if not _is_current(manifest, status.get("observedGeneration", 0)):
        return Verdict(False, "the deployment controller has not seen this version yet")
    updated, available = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
    seen = f"{available} of {wanted} replicas available, {updated} up to date"
    for condition in status.get("conditions") or []:
        if condition.get("status") == "False" and condition.get("message"):
            seen += f"; {condition.get('type')}=False: {condition['message']}"
    return Verdict(updated >= wanted and available >= wanted, seen)


def _judge_namespace(manifest: Mapping[str, Any]) -> Verdict:
    phase = (manifest.get("status") or {}).get("phase")
    return Verdict(phase == "Active", f"phase {phase}")


_BY_KIND: dict[tuple[str, str], Condition] = {
    ("apps", "Deployment"): Condition("all replicas available", _judge_deployment),
    ("", "Namespace"): Condition("phase Active", _judge_namespace),
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _status_condition(
        "condition=Established", "Established", "True"
    ),
}
