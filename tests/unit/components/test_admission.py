"""What can be said of the admission policies without an API server; tests/e2e/test_rights*.py ask one."""

from __future__ import annotations

import pytest

from components.kubernetes.admission import manifests
from components.kubernetes.admission.templates import TEMPLATES
from components.names import Manifest
from stacks.classes import JobClass
from stacks.kinds import JOB_KINDS
from stacks.labels import (
    AGENT_DRAIN_TAINT,
    CHECKPOINT_REQUEST_ANNOTATION,
    CLEARED_ANNOTATION,
    CORDONED_ANNOTATION,
    EVICTING_TAINT,
    EVICTION_ANNOTATION,
    NOTICES_ANNOTATION,
    VERDICT_ANNOTATION,
)
from stacks.load import load_file
from tests.conftest import ROOT

QUESTION_COST, EXPRESSION_LIMIT, CONDITIONS_LIMIT = 350_000, 1_000_000, 2_500_000
"""k8s.io/apiserver: cel/library/cost.go (AuthzCheckCost), apis/cel/config.go."""


FLEET = load_file(ROOT / "stacks" / "Pulumi.local.yaml")
MANIFESTS = manifests(FLEET)
POLICIES = {role: one for role, one in MANIFESTS.items() if one["kind"] == "ValidatingAdmissionPolicy"}


def test_every_kind_that_bursts_has_templates() -> None:
    known = {(one.group, one.kind, one.plural) for one in TEMPLATES}
    assert {(kind.group, kind.kind, kind.plural) for kind in JOB_KINDS} <= known


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_the_api_server_can_afford_every_question_about_rights(policy: Manifest) -> None:
    spec = policy["spec"]
    conditions = [one["expression"] for one in spec.get("matchConditions", [])]
    others = [one["expression"] for part in ("variables", "validations") for one in spec.get(part, [])]
    for expression in [*conditions, *others]:
        assert expression.count("authorizer.") * QUESTION_COST < EXPRESSION_LIMIT
    assert sum(one.count("authorizer.") for one in conditions) * QUESTION_COST < CONDITIONS_LIMIT


@pytest.mark.parametrize("role", POLICIES)
def test_every_policy_is_bound_and_fails_closed(role: str) -> None:
    assert POLICIES[role]["spec"]["failurePolicy"] == "Fail"
    binding = MANIFESTS[f"{role}-binding"]["spec"]
    assert binding == {"policyName": POLICIES[role]["metadata"]["name"], "validationActions": ["Deny"]}


def test_of_a_fleet_only_the_classes_are_in_a_policy() -> None:
    night = JobClass.model_validate({"priority": 1, "default": True, "window": "22:00-06:00 UTC"})
    other = manifests(FLEET.model_copy(update={"classes": {"night": night}, "teams": {}, "pools": {}}))
    assert [role for role in POLICIES if other[role] != POLICIES[role]] == ["jobs-start-in-their-window"]


@pytest.mark.parametrize(
    ("name", "writers", "guard"),
    [
        (VERDICT_ANNOTATION, "agent-workloads", "workloads-keep-their-queue"),
        (EVICTION_ANNOTATION, "agent-workloads", "workloads-keep-their-queue"),
        (CHECKPOINT_REQUEST_ANNOTATION, "agent-pods", "pods-keep-their-requests"),
        (CLEARED_ANNOTATION, "agent-nodes", "nodes-keep-their-notices"),
        (NOTICES_ANNOTATION, "node-agents-write-their-own-node", "nodes-keep-their-notices"),
        (CORDONED_ANNOTATION, "node-agents-write-their-own-node", "nodes-keep-their-notices"),
        (EVICTING_TAINT, "node-agents-write-their-own-node", "nodes-keep-their-notices"),
        (AGENT_DRAIN_TAINT, "agent-nodes", "nodes-keep-their-notices"),
    ],
)
def test_what_an_agent_alone_may_write_is_kept_from_everybody_else(name: str, writers: str, guard: str) -> None:
    def expressions(role: str) -> str:
        return " ".join(one["expression"] for one in POLICIES[role]["spec"]["validations"])

    assert f"'{name}'" in expressions(writers)
    assert f"'{name}'" in expressions(guard)


def test_what_the_kubelet_does_all_the_time_asks_for_no_rights() -> None:
    """An authorizer's answer costs the API server more than all else here; a condition of a policy is always asked."""
    for role in ("nodes-keep-their-notices", "pods-keep-their-requests"):
        spec = POLICIES[role]["spec"]
        assert not [one for one in spec["matchConditions"] if "authorizer." in one["expression"]]
        [only] = spec["validations"]
        assert " || authorizer." in only["expression"]
