from __future__ import annotations

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from stacks import migrations
from stacks.editing.edits import EditError
from stacks.load import load_text
from stacks.migrations import CURRENT, STEPS
from stacks.problems import ConfigError
from stacks.reading.stackfile import KEY
from stacks.version import advice

AT = ("config", KEY)

OLD = """\
# yaml-language-server: $schema=fleet.schema.json
# head

x-base: &cloud   # shared
  # inside the anchor
  location: aws
  cluster: lab
  provisioner: existing
  price_per_gpu_hour: 3.50 # negotiated

config:
  # above the fleet
  gpufleet:fleet:   # the fleet
    # the organization
    organization: acme   # us
    clusters:
      lab: {kind: existing}

    # pools come first
    node_pools: # old name
      # the rack
      rack:       {cluster: lab, location: onprem, gpu: h100-sxm-80gb, gpus_per_node: 8, nodes: 2, price_per_gpu_hour: 1.10}  # ours
      # spot
      burst-spot:
        <<: *cloud
        market: spot  # cheap
        instance_types: [p5.48xlarge]
        max_gpus: 16

      burst-od: {  # flow
        cluster: lab, location: aws, provisioner: existing,  # first line
        market: on-demand, region: us-east-1, instance_types: [p5.48xlarge],
        max_gpus: 8, # eight
        "price_per_gpu_hour": "12.00 USD"   # list
      }   # end of burst-od
    job_classes:
      P0: {priority: 1000, max_wait_minutes: 5}
      P1:
        priority: 100
        max_wait_minutes: 90   # an hour and a half
        default: true
      P2: {priority: 10, burst: never}
    teams:
      vision: {quota: {h100-onprem: 8}, weight: 2, monthly_budget: 20_000}  # no flag
      nlp:
        quota: {h100-onprem: 6}
        # the budget of nlp
        monthly_budget: 40 # dollars
        hard_budget: false # since March
        # after the flag
      speech: {quota: {h100-onprem: 2}, hard_budget: true, monthly_budget: "$1,000", max_burst_gpus: 8}
    burst:
      max_wait: 30m   # constant
      # cheapest first
      pools: [burst-spot, burst-od]
    on_destroy: remove-everything
    # end of the fleet
  gpufleet:token:
    secure: v1:abc
# end of the file
"""


def migrated(text: str) -> str:
    return migrations.migrate(text, "old.yaml", AT).text


def fleet(body: str) -> str:
    """A stack file with a fleet of these lines, which start in line 3."""
    return "config:\n  gpufleet:fleet:\n" + "".join(f"    {line}\n" for line in body.splitlines())


def comments(text: str) -> list[str]:
    return [line[line.index("#") :] for line in text.splitlines() if "#" in line]


def said(text: str) -> dict[str, object]:
    found = yaml.safe_load(text)["config"][KEY]
    assert isinstance(found, dict)
    return found


def test_a_file_of_version_0_loads_after_migration() -> None:
    found = load_text(migrated(OLD), "old.yaml")

    assert found.schema_version == CURRENT
    assert list(found.pools) == ["rack", "burst-spot", "burst-od"]
    assert said(migrated(OLD))["classes"] == {
        "P0": {"priority": 1000, "max_wait": "5m"},
        "P1": {"priority": 100, "max_wait": "1h30m", "default": True},
        "P2": {"priority": 10, "burst": "never"},
    }
    assert said(migrated(OLD))["burst"] == {
        "policy": {"kind": "constant", "wait": "30m"},
        "order": ["burst-spot", "burst-od"],
    }
    assert {name: team["budget"] for name, team in said(migrated(OLD))["teams"].items()} == {  # type: ignore[attr-defined]
        "vision": {"monthly": "20000 USD", "kind": "hard"},
        "nlp": {"monthly": "40 USD", "kind": "soft"},
        "speech": {"monthly": "1000 USD", "kind": "hard"},
    }


def test_every_comment_survives_in_order() -> None:
    assert comments(migrated(OLD)) == comments(OLD)
    assert len(comments(OLD)) > 25


def test_the_lines_that_say_nothing_old_stay_as_they_are() -> None:
    new = set(migrated(OLD).splitlines())

    old_names = (
        "node_pools",
        "job_classes",
        "price_per_gpu_hour",
        "max_wait",
        "monthly_budget",
        "hard_budget",
        " pools:",
    )
    assert not [line for line in OLD.splitlines() if line not in new and not any(name in line for name in old_names)]


def test_line_ends_of_windows_stay() -> None:
    windows = OLD.replace("\n", "\r\n")

    assert migrated(windows) == migrated(OLD).replace("\n", "\r\n")


def test_a_byte_order_mark_and_a_missing_last_line_end_stay() -> None:
    text = "\ufeff" + OLD.rstrip("\n")

    assert migrated(text) == "\ufeff" + migrated(OLD).rstrip("\n")


def test_a_second_migration_has_nothing_to_do() -> None:
    once = migrated(OLD)

    again = migrations.migrate(once, "old.yaml", AT)

    assert (again.text, again.found, again.steps) == (once, CURRENT, ())


def test_a_migration_tells_what_it_did() -> None:
    done = migrations.migrate(OLD, "old.yaml", AT)

    assert (done.found, done.steps) == (0, tuple(step.description for step in STEPS))
    assert len(STEPS) == CURRENT


def test_version_0_may_be_written_down() -> None:
    assert migrated(fleet("# first\nschema_version: 0  # old\nnode_pools: {}")) == fleet(
        "# first\nschema_version: 1  # old\npools: {}"
    )


def test_a_fleet_in_flow_style_is_migrated() -> None:
    text = "config: {'gpufleet:fleet': {node_pools: {a: {price_per_gpu_hour: 1}}, burst: {pools: [a]}}}\n"

    assert migrated(text) == (
        "config: {'gpufleet:fleet': {schema_version: 1, pools: {a: {usd_per_gpu_hour: 1}}, burst: {order: [a]}}}\n"
    )


def test_what_several_pools_share_is_changed_once() -> None:
    text = fleet("node_pools:\n  a: &a {price_per_gpu_hour: 2}\n  b: *a\n  c:\n    <<: [*a]\n    nodes: 3")

    assert said(migrated(text))["pools"] == {
        "a": {"usd_per_gpu_hour": 2},
        "b": {"usd_per_gpu_hour": 2},
        "c": {"usd_per_gpu_hour": 2, "nodes": 3},
    }


def test_a_fleet_that_is_merged_from_elsewhere_is_changed_there() -> None:
    text = "x: &base\n  node_pools: {a: {price_per_gpu_hour: 2}}\n" + fleet("<<: *base\norganization: acme")

    assert said(migrated(text)) == {
        "schema_version": 1,
        "organization": "acme",
        "pools": {"a": {"usd_per_gpu_hour": 2}},
    }


def test_names_that_only_look_old_stay() -> None:
    text = fleet("node_pools:\n  node_pools: {nodes: 1}\nclusters: {lab: {pools: 1, max_wait: 30m}}")

    assert said(migrated(text))["pools"] == {"node_pools": {"nodes": 1}}
    assert said(migrated(text))["clusters"] == {"lab": {"pools": 1, "max_wait": "30m"}}


@pytest.mark.parametrize(
    ("minutes", "wait"), [("30", "30m"), ("90", "1h30m"), ("0.5", "30s"), ("1440", "1d"), ("1_0", "10m")]
)
def test_minutes_become_a_duration(minutes: str, wait: str) -> None:
    text = fleet(f"job_classes:\n  P0: {{max_wait_minutes: {minutes}}}")

    assert said(migrated(text))["classes"] == {"P0": {"max_wait": wait}}


AMBIGUOUS = [
    ("node_pools: {}\npools: {}", 3, "node_pools: is the old name of pools, which is there too (line 4)"),
    ("pools: {}\njob_classes: {}\nclasses: {}", 4, "job_classes: is the old name of classes"),
    ("pools:\n  a: {usd_per_gpu_hour: 1, price_per_gpu_hour: 2}", 4, "price_per_gpu_hour: is the old name"),
    ("pools:\n  a: &a {usd_per_gpu_hour: 1}\n  b:\n    <<: *a\n    price_per_gpu_hour: 2", 7, "usd_per_gpu_hour"),
    ("classes:\n  P0: {max_wait: 1m, max_wait_minutes: 2}", 4, "max_wait_minutes: is the old name"),
    ("teams:\n  t: {monthly_budget: 2, budget: {}}", 4, "monthly_budget: is the old name of budget"),
    ("teams:\n  t: {hard_budget: true, budget: {}}", 4, "hard_budget: is the old name of budget"),
    ("burst:\n  max_wait: 1m\n  policy: {}", 4, "max_wait: is the old name of policy"),
    ("burst:\n  pools: []\n  order: []", 4, "pools: is the old name of order"),
    ("teams:\n  t: {hard_budget: true}", 4, "no monthly_budget beside it"),
    ("teams:\n  a: &a {monthly_budget: 1}\n  t:\n    <<: *a\n    hard_budget: false", 7, "no monthly_budget beside it"),
    ("teams:\n  t: {monthly_budget: 1, hard_budget: maybe}", 4, "true or false (got 'maybe')"),
    ("teams:\n  t: {monthly_budget: 10 EUR}", 4, "EUR is not supported"),
    ("teams:\n  t: {monthly_budget: }", 4, "for example 20000 USD (got None)"),
    ("classes:\n  P0: {max_wait_minutes: soon}", 4, "a number of minutes above 0, for example 30 (got 'soon')"),
    ("classes:\n  P0: {max_wait_minutes: .inf}", 4, "number of minutes"),
    ("classes:\n  P0: {max_wait_minutes: -1}", 4, "number of minutes"),
    ("classes:\n  P0: {max_wait_minutes: true}", 4, "number of minutes"),
    ("classes:\n  P0: {max_wait_minutes: [1]}", 4, "a single value"),
    ("classes:\n  P0: {max_wait_minutes: &m 1}\n  P1: {max_wait_minutes: *m}", 4, "has an anchor"),
    ("burst: {max_wait: 30}", 3, "a duration, for example 30m (got 30)"),
    ("schema_version: 2", 3, "upgrade gpufleet"),
    ("schema_version: '1'", 3, "a whole number from 0 to 1 (got '1')"),
    ("schema_version: -1", 3, "a whole number"),
    ("schema_version: true", 3, "a whole number"),
    ("schema_version: {}", 3, "a single value"),
    ("schema_version: !!int one", 3, "a whole number"),
    ("secure: v1:abc", 1, "encrypted"),
]


@pytest.mark.parametrize(("body", "line", "reason"), AMBIGUOUS)
def test_a_file_that_could_be_read_two_ways_is_refused_with_its_line(body: str, line: int, reason: str) -> None:
    with pytest.raises(EditError) as refused:
        migrated(fleet(body))

    assert reason in str(refused.value)
    assert refused.value.line == line


@pytest.mark.parametrize("text", ["a: 1\n", "config: 3\n", "config:\n  gpufleet:fleet: [1]\n"])
def test_a_file_without_a_fleet_is_refused(text: str) -> None:
    with pytest.raises(EditError, match=r"has no config\.gpufleet:fleet"):
        migrated(text)


def test_every_key_that_is_written_twice_is_named() -> None:
    with pytest.raises(ConfigError) as refused:
        migrated(fleet("pools: {}\npools: {}\nteams: {a: {}, a: {}}"))

    assert [(problem.line, problem.path) for problem in refused.value.problems] == [(4, "pools"), (5, "teams.a")]


def test_advice_names_the_command_for_an_old_file_and_the_upgrade_for_a_new_one() -> None:
    assert advice(0) == "is written in schema version 0; run `gpufleet migrate` on it"
    assert "upgrade gpufleet" in advice(CURRENT + 1)


def test_thousands_of_pools_are_migrated() -> None:
    pools = "\n".join(f"  p{i}: {{nodes: 1, price_per_gpu_hour: {i}}}  # {i}" for i in range(300))

    assert len(said(migrated(fleet(f"node_pools:\n{pools}")))["pools"]) == 300  # type: ignore[arg-type]


@settings(max_examples=40)
@given(
    st.integers(0, len(OLD) - 1), st.integers(0, 12), st.text("{}[]:,#&*!|>'\"\n\r\t -?<ab0\x00\x85\ufeff", max_size=3)
)
def test_a_damaged_file_is_migrated_right_or_refused(start: int, length: int, put: str) -> None:
    damaged = OLD[:start] + put + OLD[start + length :]

    try:
        done = migrated(damaged)
    except (EditError, ConfigError):
        return

    try:
        assert said(done)["schema_version"] == CURRENT
    except yaml.YAMLError:  # a tag that nobody knows was there before, and is there still
        with pytest.raises(yaml.YAMLError):
            yaml.safe_load(damaged)
    assert migrated(done) == done
