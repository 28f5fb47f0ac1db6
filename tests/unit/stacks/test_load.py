"""What a person sees when the fleet file is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stacks.load import KEY, ConfigError, load_file, load_object, load_stack, load_text

GOOD = (Path(__file__).parents[3] / "stacks" / "Pulumi.local.yaml").read_text()


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_text(text, "f.yaml")
    return [str(problem) for problem in caught.value.problems]


def line_of(text: str, part: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if part in line)


def with_change(old: str, new: str) -> str:
    assert old in GOOD, old
    return GOOD.replace(old, new, 1)


def test_the_shipped_file_is_right() -> None:
    assert load_text(GOOD, "f.yaml").organization == "acme"


def test_all_problems_are_reported_at_once_and_in_the_order_of_their_lines() -> None:
    text = with_change("market: spot", "market: sopt").replace("wait_per_gpu_hour: 4m30s", "wait_per_gpu_hour: 270")
    text = text.replace("nodes: 2,", "nodez: 2,", 1)
    found = problems(text)
    assert [int(line.split(":")[1]) for line in found] == sorted(int(line.split(":")[1]) for line in found)
    assert any("pools.rack.nodes: is required" in line for line in found)
    assert any("pools.rack.nodez: is not a known setting; did you mean nodes?" in line for line in found)
    assert any("pools.burst-spot.market" in line and "did you mean spot?" in line for line in found)
    assert any("burst.policy.wait_per_gpu_hour" in line and "for example 90s" in line for line in found)


@pytest.mark.parametrize(
    ("old", "new", "path", "reason"),
    [
        ("location: onprem", "location: onpre", "pools.rack", "did you mean onprem?"),
        ("gpu: h100-sxm-80gb", "gpu: h100-sxm", "pools.rack", "GPU model h100-sxm is not in the catalogue"),
        ("kind: compute-wait", "kind: compute", "burst.policy", "did you mean compute-wait?"),
        ("order: [burst-spot, burst-od]", "order: [burst-spot, rack, burst-od]", "burst.order.1", "is an on-prem pool"),
        ("order: [burst-spot, burst-od]", "order: [burst-spot]", "pools.burst-od", "is in no burst.order"),
        ("order: [burst-spot,", "order: [burst-od,", "burst.order.1", "is named twice"),
        ("quota: {h100-onprem: 8}", "quota: {h100-onprm: 8}", "teams.vision.quota.h100-onprm", "did you mean h100-onprem?"),
        ("quota: {h100-onprem: 8}", "quota: {h100-aws-spot: 8}", "teams.vision.quota.h100-aws-spot", "max_burst_gpus"),
        ("quota: {h100-onprem: 8}", "quota: {h100-onprem: 80}", "teams", "sum to 88 GPUs"),
        ("default: true", "default: false", "classes", "no class is the default"),
        ("burst: never}", "burst: never, default: true}", "classes.P2.default", "class P1 is the default already"),
        ("P2:", "p1:", "classes.p1", "differs from class P1 only in case"),
        ("  vision: {", "  vision-burst: {", "teams.vision-burst", "may not end with '-burst'"),
        ("cluster: lab, location: onprem", "cluster: lap, location: onprem", "pools.rack.cluster", "did you mean lab?"),
        ("node_names: [rack-0, rack-1]", "node_names: [rack-0]", "pools.rack", "has 1 names for 2 nodes"),
        (", usd_per_gpu_hour: 3.50", "", "pools.burst-spot", "a spot pool needs usd_per_gpu_hour"),
        ("monthly: 100 USD", "monthly: 120 EUR", "burst.budget.monthly", "EUR is not supported"),
        ("monthly: 100 USD", "monthly: -1", "burst.budget.monthly", "must not be negative"),
        ("bounds: [2m, 2h]", "bounds: [3h, 2h]", "burst.policy", "the first must not be longer"),
        ("schema_version: 1", "schema_version: 2", "schema_version", "must be 1"),
        ("organization: acme", "organization: Acme Inc", "organization", "try acme-inc"),
        ("replay_speed: 60", "image: gpufleet/agent:latest", "agent.image", "pin a tag"),
        ("gpus_per_node: 8", "gpus_per_node: 0", "pools.rack.gpus_per_node", "must be 1 or more (got 0)"),
        ("order: [burst-spot, burst-od]", "order: burst-spot", "burst.order", "must be a list"),
        ("order: [burst-spot, burst-od]", "order: []", "burst.order", "needs at least 1, has 0"),
        ("default: true", "default: maybe", "classes.P1.default", "must be true or false (got 'maybe')"),
        ("replay_speed: 60", "replicas: 2", "agent.replicas", "set agent.ledger to {kind: object-store"),
        ("  vision: {", "  default: {quota: {}}\n      vision: {", "teams.default", "belongs to the system"),
        ("  vision: {", "  " + "v" * 58 + ": {", "teams." + "v" * 58, "at most 57 characters"),
        ("usd_per_gpu_hour: 3.50", "usd_per_gpu_hour: 0", "pools.burst-spot.usd_per_gpu_hour", "must be more than 0"),
        ("interval: 500ms", "interval: 0.4ms", "agent.interval", "at least 1ms"),
        ("interval: 500ms", "interval: 1d", "agent.interval", "between 100ms and 5m"),
        ("nodes: 2,", "nodes: 2, cpus_per_node: 4,", "pools.rack", "less than a core for each of 8 GPUs"),
        ("nodes: 2,", "nodes: 2, memory_per_node: 512Mi,", "pools.rack", "less than 1Gi for each"),
        ("max_gpus: 16", "max_gpus: '16'", "pools.burst-spot.max_gpus", "must be a whole number"),
        ("instance_types: [p5.48xlarge]", "instance_types: [p5.48xlarge, p4d.24xlarge]", "pools.burst-spot", "mixes GPU"),
        ("instance_types: [p5.48xlarge]", "instance_types: [p5.48xlarg]", "pools.burst-spot", "did you mean p5.48xlarge?"),
        ("  vision: {", "  vision: {namespace: nlp, ", "teams.nlp", "namespace nlp is team vision's already"),
        ("  vision: {", "  vision: {namespace: kube-system, ", "teams.vision", "belongs to the system"),
        ("  vision: {", "  vision: {lend: {h100-onprem: 9}, ", "teams.vision", "more than the quota of 8"),
    ],
)  # fmt: skip
def test_each_mistake_is_named_at_its_place_with_a_way_out(old: str, new: str, path: str, reason: str) -> None:
    text = with_change(old, new)
    matching = [line for line in problems(text) if f": {path}: " in line and reason in line]
    assert matching, problems(text)
    assert 1 < int(matching[0].split(":")[1]) <= len(text.splitlines())


def test_a_key_written_twice_is_refused_because_one_would_be_lost() -> None:
    text = with_change("organization: acme", "organization: acme\n    organization: other")
    [found] = problems(text)
    assert f"f.yaml:{line_of(text, 'other')}:5: config.gpufleet:fleet.organization: is written twice" in found


def test_an_encrypted_value_inside_the_object_is_refused_and_never_printed() -> None:
    text = with_change("organization: acme", "organization: {secure: AAABADQXFqRs7sEcReTd}")
    [found] = problems(text)
    assert "make it a sibling secret" in found
    assert "AAABADQXFqRs7sEcReTd" not in found


def test_an_unknown_key_of_ours_beside_the_object_is_refused_but_a_sibling_secret_is_not() -> None:
    text = with_change(
        "config:\n",
        "config:\n  gpufleet:flet: {}\n  gpufleet:kubeconfig:\n    secure: AAABADQX\n  aws:region: us-east-1\n",
    )
    [found] = problems(text)
    assert "gpufleet:flet" in found
    assert "did you mean gpufleet:fleet?" in found


def test_anchors_and_merges_are_followed_to_where_the_value_was_written() -> None:
    text = with_change("  P0: {priority: 1000, max_wait: 5m}", "  P0: &base {priority: 1000, max_wait: 5}").replace(
        "P1: {priority: 100, max_wait: 30m, default: true}", "P1: {<<: *base, default: true}"
    )
    found = problems(text)
    assert {line.split(":")[1] for line in found if "max_wait" in line} == {str(line_of(text, "&base"))}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "has no config.gpufleet:fleet"),
        ("config:\n", "has no config.gpufleet:fleet"),
        ("[1, 2]", "has no config.gpufleet:fleet"),
        ("config: {gpufleet:fleet: 7}", "must be a mapping"),
        ("config: {gpufleet:fleet: {}}", "is required"),
        ("config: [unclosed", "not YAML"),
        ("\t- x", "not YAML"),
        ("a: *missing", "not YAML"),
        ("a: !!python/object:os.system x", "not YAML"),
        ("[" * 3_000, "not YAML"),
        ("config: {gpufleet:fleet: {schema_version: 2024-13-45}}", ""),
    ],
)
def test_text_that_is_no_stack_file_gets_one_clear_error(text: str, reason: str) -> None:
    found = problems(text)
    assert found
    assert reason in found[0]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.yaml: cannot be read: No such file"):
        load_file(tmp_path / "missing.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        load_file(tmp_path / "binary.yaml")
    (tmp_path / "huge.yaml").write_bytes(b"#" * (5 * 2**20))
    with pytest.raises(ConfigError, match="at most"):
        load_file(tmp_path / "huge.yaml")


def test_an_object_from_elsewhere_than_the_file_is_reported_by_its_path(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.x.yaml"
    file.write_text(GOOD)
    with pytest.raises(ConfigError, match=rf"(?m)^{KEY}: schema_version: is required$"):
        load_stack(file, {"organization": "acme"})


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=12,
    )
)
def test_no_object_whatever_makes_the_reader_crash(value: object) -> None:
    with pytest.raises(ConfigError):
        load_object(value, "x")
