from __future__ import annotations

from typing import Any

import pytest

from infra.chaos.nodes import Target, as_created, choose, noticed, refuse_to_lose, taken_back
from infra.chaos.terms import ChaosError
from runtime.eviction.notice import NoticeKind, notices_from_json
from stacks.labels import CORDONED_ANNOTATION, EVICTING_TAINT, NOTICES_ANNOTATION
from tests.builders import NOON
from tests.fakes.cluster import _merge
from tests.unit.chaos.builders import BURST, a_drill, a_node, a_notice

Raw = dict[str, Any]
DRILL, OTHER = "drill-1-node-0", "i-1"


def patched(node: Raw, patch: Raw | None) -> Raw:
    """The node with a patch merged into it, as the API server does."""
    assert patch is not None
    assert patch["metadata"].pop("resourceVersion") == node["metadata"]["resourceVersion"]
    after: Raw = node | {"metadata": dict(node["metadata"]), "spec": dict(node["spec"])}
    after["metadata"]["annotations"] = dict(node["metadata"].get("annotations") or {})
    _merge(after, patch)
    return after


def taints(node: Raw) -> list[tuple[str, str]]:
    return [(one["key"], one["value"]) for one in node["spec"].get("taints") or ()]


def test_the_nodes_with_most_running_gpu_pods_are_taken_first() -> None:
    nodes = [a_node(f"node-{index}") for index in range(4)]

    taken = choose(nodes, {"node-2": 8, "node-1": 3}, a_drill(nodes=2), NOON)

    assert [(one.name, one.gpu_pods) for one in taken] == [("node-2", 8), ("node-1", 3)]


def test_equal_nodes_are_taken_in_an_order_that_the_seed_repeats() -> None:
    nodes = [a_node(f"node-{index}") for index in range(20)]

    def taken(seed: int, found: list[Raw]) -> list[str]:
        return [one.name for one in choose(found, {}, a_drill(nodes=5, seed=seed), NOON)]

    assert taken(8, nodes) == taken(8, nodes[::-1])
    assert len({tuple(taken(seed, nodes)) for seed in range(5)}) > 1


def test_too_few_nodes_are_refused_and_it_is_said_what_the_others_are() -> None:
    going = patched(a_node("node-1"), noticed(a_node("node-1"), a_notice(OTHER, source="aws")))
    nodes = [a_node("node-0"), going, a_node("node-2", ready=False), a_node("rack-0", pool="rack")]

    with pytest.raises(ChaosError, match="1 Ready nodes without a notice, fewer than --nodes 2") as refused:
        choose(nodes, {}, a_drill(nodes=2), NOON)

    assert "3 in all; 1 are not Ready, 1 have a notice already" in str(refused.value)


def test_a_mistyped_pool_is_named_with_the_nearest() -> None:
    with pytest.raises(ChaosError, match="did you mean spot"):
        choose([a_node()], {}, a_drill(pool="sopt"), NOON)


def test_a_cluster_without_pools_is_said() -> None:
    with pytest.raises(ChaosError, match=r"no node has the label gpufleet\.dev/pool"):
        choose([{"metadata": {"name": "bare"}}], {}, a_drill(), NOON)


def test_a_notice_is_one_patch_and_taking_it_back_leaves_the_node_as_it_was() -> None:
    before = a_node()

    during = patched(before, noticed(before, a_notice(DRILL)))
    after = patched(during, taken_back(during, [DRILL]))

    assert during["spec"]["unschedulable"] is True
    assert taints(during) == [(BURST["key"], "true"), (EVICTING_TAINT, "spot-interruption")]
    assert during["metadata"]["annotations"][CORDONED_ANNOTATION] == DRILL
    [notice] = notices_from_json(during["metadata"]["annotations"][NOTICES_ANNOTATION])
    assert (notice.id, notice.source) == (DRILL, "drill")
    assert after == before


def test_a_node_that_somebody_cordoned_stays_cordoned() -> None:
    before = a_node(unschedulable=True)

    during = patched(before, noticed(before, a_notice(DRILL)))

    assert CORDONED_ANNOTATION not in during["metadata"]["annotations"]
    assert patched(during, taken_back(during, [DRILL])) == before


def test_a_real_notice_that_came_meanwhile_keeps_the_node_cordoned_and_on_record() -> None:
    node = a_node()
    during = patched(node, noticed(node, a_notice(DRILL)))
    both = patched(during, noticed(during, a_notice(OTHER, source="aws", kind=NoticeKind.MAINTENANCE)))

    after = patched(both, taken_back(both, [DRILL]))

    assert [one.id for one in notices_from_json(after["metadata"]["annotations"][NOTICES_ANNOTATION])] == [OTHER]
    assert taints(after)[-1] == (EVICTING_TAINT, NoticeKind.MAINTENANCE.value)
    assert after["spec"]["unschedulable"] is True
    assert after["metadata"]["annotations"][CORDONED_ANNOTATION] == OTHER


def test_a_real_notice_with_the_id_of_a_drill_is_left_alone() -> None:
    node = a_node()
    during = patched(node, noticed(node, a_notice(DRILL, source="aws")))
    during["metadata"]["annotations"].pop(CORDONED_ANNOTATION)

    assert taken_back(during, [DRILL]) is None


def test_a_node_without_traces_needs_no_patch() -> None:
    assert taken_back(a_node(), [DRILL]) is None


def test_an_annotation_that_cannot_be_read_is_never_written_over() -> None:
    node = a_node()
    node["metadata"]["annotations"][NOTICES_ANNOTATION] = "mine!"

    with pytest.raises(ChaosError, match="cannot be read"):
        noticed(node, a_notice())
    with pytest.raises(ChaosError, match="cannot be read"):
        taken_back(node, [DRILL])


def test_the_node_to_create_again_has_nothing_that_only_the_server_or_a_kubelet_may_say() -> None:
    created = as_created(a_node(unschedulable=True))

    assert created["metadata"].keys() == {"name", "labels", "annotations"}
    assert created["spec"] == {"taints": [BURST], "providerID": "fake:///node-0", "unschedulable": True}
    assert created["status"] == {"allocatable": {"nvidia.com/gpu": "8"}}


def test_a_node_whose_deletion_would_end_its_machine_is_not_lost() -> None:
    node = a_node(simulated=False)
    node["metadata"]["finalizers"] = ["karpenter.sh/termination"]

    with pytest.raises(ChaosError, match=r"karpenter\.sh/termination"):
        refuse_to_lose([Target("node-0", node, 1)])
