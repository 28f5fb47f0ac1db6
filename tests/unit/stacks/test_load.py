"""What a person sees when the fleet file is wrong."""

from __future__ import annotations

import copy
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stacks.load import KEY, ConfigError, load_file, load_object, load_text, read_stack, read_text
from stacks.reading.stackfile import find

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
    assert not any("pools.rack.nodes: is required" in line for line in found), "one mistake, one message"
    assert any("pools.rack.nodez: is not a known setting; did you mean nodes?" in line for line in found)
    assert any("pools.burst-spot.market" in line and "did you mean spot?" in line for line in found)
    assert any("burst.policy.wait_per_gpu_hour" in line and "for example 90s" in line for line in found)


@pytest.mark.parametrize(
    ("old", "new", "path", "reason"),
    [
        ("location: onprem", "location: onpre", "pools.rack.location", "did you mean onprem?"),
        ("kind: compute-wait", "kind: compute", "burst.policy.kind", "did you mean compute-wait?"),
        ("order: [burst-spot, burst-od]", "order: [burst-spot, rack, burst-od]", "burst.order.1", "is an on-prem pool"),
        ("order: [burst-spot, burst-od]", "order: [burst-spot]", "pools.burst-od", "is in no burst.order"),
        ("order: [burst-spot,", "order: [burst-od,", "burst.order.1", "is named twice"),
        ("quota: {h100-onprem: 8}", "quota: {h100-onprm: 8}", "teams.vision.quota.h100-onprm", "did you mean h100-onprem?"),
        ("quota: {h100-onprem: 8}", "quota: {h100-aws-spot: 8}", "teams.vision.quota.h100-aws-spot", "max_burst_gpus"),
        ("quota: {h100-onprem: 8}", "quota: {h100-onprem: 80}", "teams", "sum to 88 GPUs"),
        ("default: true", "default: false", "classes", "no class is the default"),
        ("burst: never}", "burst: never, default: true}", "classes.P2.default", "class P1 is the default already"),
        ("P2:", "p1:", "classes.p1", "differs from class P1 only in case"),
        ("  vision: {", "  vision-burst: {", "teams.vision-burst", "or end with '-burst', which name queues of ours"),
        ("cluster: lab, location: onprem", "cluster: lap, location: onprem", "pools.rack.cluster", "did you mean lab?"),
        ("node_names: [rack-0, rack-1]", "node_names: [rack-0]", "pools.rack.node_names", "has 1 names for 2 nodes"),
        (", usd_per_gpu_hour: 3.50", "", "pools.burst-spot.usd_per_gpu_hour", "a spot pool needs the most you will pay"),
        ("monthly: 100 USD", "monthly: 120 EUR", "burst.budget.monthly", "EUR is not supported"),
        ("monthly: 100 USD", "monthly: -1", "burst.budget.monthly", "must not be negative"),
        ("bounds: [2m, 2h]", "bounds: [3h, 2h]", "burst.policy.bounds", "the first must not be longer"),
        ("schema_version: 1", "schema_version: true", "schema_version", "must be 1"),
        ("organization: acme", "organization: Acme Inc", "organization", "try acme-inc"),
        ("replay_speed: 60", "image: gpufleet/agent:latest", "agent.image", "pin a tag"),
        ("gpus_per_node: 8", "gpus_per_node: 0", "pools.rack.gpus_per_node", "must be 1 or more (got 0)"),
        ("order: [burst-spot, burst-od]", "order: burst-spot", "burst.order", "must be a list"),
        ("order: [burst-spot, burst-od]", "order: []", "burst.order", "needs at least one entry"),
        ("default: true", "default: maybe", "classes.P1.default", "must be true or false (got 'maybe')"),
        ("replay_speed: 60", "replicas: 2", "agent.replicas", "set agent.ledger to {kind: object-store"),
        ("  vision: {", "  default: {quota: {}}\n      vision: {", "teams.default", "belongs to the system"),
        ("  vision: {", "  " + "v" * 58 + ": {", "teams." + "v" * 58, "a name of 83 characters, and a label takes 63; take 20 off the name of the team"),
        ("usd_per_gpu_hour: 3.50", "usd_per_gpu_hour: 0", "pools.burst-spot.usd_per_gpu_hour", "must be more than 0"),
        ("interval: 500ms", "interval: 0.4ms", "agent.interval", "at least 1ms"),
        ("interval: 500ms", "interval: 1d", "agent.interval", "between 100ms and 5m"),
        ("nodes: 2,", "nodes: 2, cpus_per_node: 4,", "pools.rack.cpus_per_node", "less than a core for each of 8 GPUs"),
        ("nodes: 2,", "nodes: 2, memory_per_node: 512Mi,", "pools.rack.memory_per_node", "less than 1Gi for each"),
        ("max_gpus: 16", "max_gpus: '16'", "pools.burst-spot.max_gpus", "must be a whole number"),
        ("instance_types: [p5.48xlarge]", "instance_types: [p5.48xlarge, p4d.24xlarge]", "pools.burst-spot.instance_types", "several GPU models"),
        ("instance_types: [p5.48xlarge]", "instance_types: [p5.48xlarg]", "pools.burst-spot.instance_types", "did you mean p5.48xlarge?"),
        ("  vision: {", "  vision: {namespace: nlp, ", "teams.nlp", "namespace nlp is team vision's already"),
        ("  vision: {", "  vision: {namespace: kube-system, ", "teams.vision", "belongs to the system"),
        ("  vision: {", "  vision: {lend: {h100-onprem: 9}, ", "teams.vision.lend.h100-onprem", "more than the quota of 8"),
    ],
)  # fmt: skip
def test_each_mistake_is_named_at_its_place_with_a_way_out(old: str, new: str, path: str, reason: str) -> None:
    text = with_change(old, new)
    matching = [line for line in problems(text) if f": {path}: " in line and reason in line]
    assert matching, problems(text)
    assert 1 < int(matching[0].split(":")[1]) <= len(text.splitlines())


def test_a_text_where_a_number_of_the_version_belongs_is_told_from_another_version() -> None:
    [found] = problems(with_change("schema_version: 1", "schema_version: '1'"))
    assert "schema_version: must be 1 without quotes (got '1')" in found


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("organization: acme", "organization:", "organization"),
        ("nodes: 2,", "nodes: ,", "pools.rack.nodes"),
        ("order: [burst-spot,", "order: [~,", "burst.order.0"),
        ("interval: 500ms", "interval: ", "agent.interval"),
        ("organization: acme", "organization: acme\n    spot:", "spot"),
    ],
)
def test_a_setting_without_a_value_is_refused_even_where_there_is_a_default(old: str, new: str, path: str) -> None:
    [found] = problems(with_change(old, new))
    assert f": {path}: has no value; write one, or leave the setting out" in found


def test_what_is_no_setting_or_stands_in_the_wrong_kind_of_value_is_not_also_empty() -> None:
    [found] = problems(with_change("nodes: 2,", "nodes: 2, extra: ,"))
    assert "pools.rack.extra: is not a known setting" in found
    [found] = problems(with_change("order: [burst-spot, burst-od]", "order: {burst-spot: }"))
    assert "burst.order: must be a list" in found


def test_a_number_that_a_comma_splits_in_braces_is_told_as_such() -> None:
    text = GOOD.replace("monthly: 100 USD", "monthly: 20,000 USD")
    assert any("a comma in braces begins a new setting" in line for line in problems(text))


def test_rules_are_not_told_of_a_file_whose_keys_are_written_twice() -> None:
    [found] = problems(
        with_change("  vision: {", "  vision: {}\n      vision: {").replace("h100-onprem: 8", "no-such: 8")
    )
    assert "teams.vision: is written twice" in found


def test_rules_are_told_beside_a_stray_key() -> None:
    text = with_change("config:\n", "config:\n  gpufleet:flet: 1\n").replace("cluster: lab", "cluster: lap")
    assert any("no such cluster" in line for line in problems(text))


def test_one_wrong_value_that_several_settings_use_is_told_once() -> None:
    text = with_change("P0: {priority: 1000, max_wait: 5m}", "P0: &base {priority: 1000, max_wait: 5}").replace(
        "P1: {priority: 100, max_wait: 30m, default: true}", "P1: {<<: *base, default: true}"
    )
    [found] = problems(text)
    assert "classes.P0.max_wait" in found
    assert found.endswith("(and for 1 more setting that uses it)")


def test_a_key_written_twice_is_refused_because_one_would_be_lost() -> None:
    text = with_change("organization: acme", "organization: acme\n    organization: other")
    [found] = problems(text)
    assert f"f.yaml:{line_of(text, 'other')}:5: organization: is written twice" in found


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
        ("", "is empty: it has no config.gpufleet:fleet"),
        ("config:\n", "has no config.gpufleet:fleet"),
        ("[1, 2]", "has no config.gpufleet:fleet"),
        ("config: {gpufleet:fleet: 7}", "must be a mapping"),
        ("config: {gpufleet:fleet: {}}", "is required"),
        ("config: [unclosed", "not YAML"),
        ("\t- x", "not YAML"),
        ("a: *missing", "not YAML"),
        (
            "config: {gpufleet:fleet: {organization: !!python/object:os.system x}}",
            "has the tag !!python/object:os.system",
        ),
        ("[" * 3_000, "nested more than 100 levels"),
        ("config: {gpufleet:fleet: {schema_version: 2024-13-45}}", ""),
    ],
)
def test_text_that_is_no_stack_file_gets_one_clear_error(text: str, reason: str) -> None:
    found = problems(text)
    assert found
    assert any(reason in line for line in found)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.yaml: cannot be read: No such file"):
        load_file(tmp_path / "missing.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is UTF-16 text, not UTF-8; save it as UTF-8"):
        load_file(tmp_path / "binary.yaml")
    (tmp_path / "huge.yaml").write_bytes(b"#" * (5 * 2**20))
    with pytest.raises(ConfigError, match="is larger than 4,194,304 bytes"):
        load_file(tmp_path / "huge.yaml")


def test_an_object_from_elsewhere_than_the_file_is_reported_by_its_path(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.x.yaml"
    file.write_text(GOOD)
    with pytest.raises(ConfigError, match=rf"(?m)^{KEY}: schema_version: is required; write 1"):
        read_stack(file, {"organization": "acme"})


def test_an_object_that_is_none_is_said_of_its_key_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_stack(tmp_path / "Pulumi.x.yaml", None)
    [problem] = caught.value.problems
    assert str(problem).startswith(f"{KEY}: must be a mapping of settings")


def test_the_object_that_pulumi_resolved_from_the_file_is_reported_by_line(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.x.yaml"
    text = with_change("nodes: 2,", "nodes: 0,")
    file.write_text(text)
    resolved = find(text, "x").value
    with pytest.raises(ConfigError) as caught:
        read_stack(file, resolved, display="stacks/Pulumi.x.yaml")
    [problem] = caught.value.problems
    assert str(problem).startswith(f"stacks/Pulumi.x.yaml:{line_of(text, 'nodes: 0')}:")


@pytest.mark.parametrize("content", [None, b"config: [", b"\xff", b""])
def test_a_broken_file_that_pulumi_did_not_read_stops_nothing(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "Pulumi.x.yaml"
    if content is not None:
        file.write_bytes(content)
    assert read_stack(file, find(GOOD, "x").value).fleet.organization == "acme"


def test_problems_of_all_kinds_are_told_together() -> None:
    text = with_change("organization: acme", "organization: {secure: AAAB}").replace("nodes: 2,", "nodes: 2026-01-01,")
    text = text.replace("config:", "config:\n  gpufleet:flet: 1").replace("max_wait: 5m", "max_wait: 5", 1)
    text = text.replace("P2: {", "P2: {burst: always, ")
    with pytest.raises(ConfigError) as caught:
        load_text(text, "f.yaml")
    found = [(problem.code, problem.path) for problem in caught.value.problems]
    assert found[:2] == [("unknown-setting", "gpufleet:flet"), ("secret-inside", "organization")]
    assert ("wrong-type", "pools.rack.nodes") in found
    assert ("bad-value", "classes.P0.max_wait") in found
    assert ("duplicate-key", "classes.P2.burst") in found
    assert len(found) == len(set(found)), "one problem for each mistake"


def test_warnings_let_a_file_pass_unless_it_is_strict() -> None:
    text = with_change("quota: {h100-onprem: 8}", "quota: {h100-onprem: 7}")
    [warning] = read_text(text, "f.yaml").warnings
    assert warning.severity == "warning"
    assert warning.line == line_of(text, "rack:")
    assert "f.yaml:11:7: warning: pools.rack" in str(warning)
    strict = text.replace("organization:", "strict: true\n    organization:", 1)
    with pytest.raises(ConfigError) as caught:
        load_text(strict, "f.yaml")
    assert {problem.severity for problem in caught.value.problems} == {"error"}
    with pytest.raises(ConfigError):
        read_text(text, "f.yaml", strict=True)


@settings(max_examples=200)
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


@settings(max_examples=80)
@given(st.data())
def test_any_small_change_of_a_good_text_gives_a_fleet_or_a_config_error(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(GOOD)))
    end = min(len(GOOD), start + data.draw(st.integers(0, 12)))
    new = data.draw(st.text(st.sampled_from("a0-.:,#&*!|>{}[]'\"%@`?~< \t\n\r\x00é\u2028\ufeff"), max_size=6))
    with suppress(ConfigError):
        load_text(GOOD[:start] + new + GOOD[end:], "f.yaml")


OTHER_VALUES: st.SearchStrategy[object] = st.sampled_from(
    [None, True, 0, -1, 10**30, 0.5, "", "x", "5m", "9" * 5000, [], [[]], {}, {"kind": "x"}, {"secure": "x"}]
)


@settings(max_examples=120)
@given(st.data())
def test_any_small_change_of_a_good_object_gives_a_fleet_or_a_config_error(data: st.DataObject) -> None:
    value = copy.deepcopy(find(GOOD, "f.yaml").value)
    inner = value
    for _ in range(data.draw(st.integers(0, 3))):
        keys = [key for key, child in inner.items() if isinstance(child, dict) and child]
        if not keys:
            break
        inner = inner[data.draw(st.sampled_from(keys))]
    key = data.draw(st.sampled_from([*inner, "other"]))
    if data.draw(st.booleans()):
        inner[key] = data.draw(OTHER_VALUES)
    else:
        inner.pop(key, None)
    with suppress(ConfigError):
        load_object(value, "x")
