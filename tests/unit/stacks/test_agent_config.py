"""The agent reads exactly what the components wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from stacks.agent_config import AgentConfig, agent_config, dump, parse
from stacks.flavors import flavors_of_pools
from stacks.links import link_rate
from stacks.load import load_file

STACKS = Path(__file__).parents[3] / "stacks"
FLEET = load_file(STACKS / "Pulumi.local.yaml")


def test_the_configuration_survives_the_config_map() -> None:
    config = agent_config(FLEET)
    assert parse(dump(config)) == config
    assert dump(parse(dump(config))) == dump(config)


def test_a_setting_of_another_version_is_refused() -> None:
    with pytest.raises(ValidationError, match="surprise"):
        parse(dump(agent_config(FLEET)) + "surprise: 1\n")


def test_every_class_is_resolved_with_its_run_time() -> None:
    config = agent_config(FLEET)
    assert config.default_class == "p1"
    assert {name: job_class.burst for name, job_class in config.classes.items()} == {
        "p0": "allowed", "p1": "allowed", "p2": "never"
    }  # fmt: skip
    assert all(job_class.expected_runtime == FLEET.burst.expected_runtime for job_class in config.classes.values())


def test_flavors_come_from_pools_local_first_and_cloud_in_burst_order() -> None:
    config = agent_config(FLEET)
    assert list(flavors_of_pools(FLEET.pools)) == ["h100-onprem", "h100-aws-spot", "h100-aws-on-demand"]
    assert config.burst_order == ("h100-aws-spot", "h100-aws-on-demand")


def test_the_models_hold_no_default_that_a_config_map_could_lose() -> None:
    thin = AgentConfig.model_fields
    assert thin["replay_speed"].default == 1.0


def test_queues_windows_and_the_link_that_data_crosses_are_resolved_to_what_the_agent_needs() -> None:
    config = agent_config(load_file(STACKS / "Pulumi.hybrid.yaml"))
    language = config.teams["language"]

    assert language.burst_queues["h100-gcp-spot"] == "language-burst-h100-gcp-spot"
    assert list(language.burst_queues) == list(config.burst_order)
    assert language.window_queues == {"nightly": "language-window-nightly"}
    assert str(config.classes["nightly"].window) == "Mon-Fri 20:00-06:00 Europe/Berlin"
    assert (config.flavors["h100-gcp-spot"].place, config.flavors["h100-onprem"].place) == ("spot", "onprem")
    assert config.data is not None
    assert config.data.bandwidth == 10_000_000_000
    assert config.projects["translation"].budget.time_zone == "Europe/Berlin"


@pytest.mark.parametrize("stack", ["example.yaml", "Pulumi.dev.yaml", "Pulumi.prod.yaml", "Pulumi.hybrid.yaml"])
def test_every_file_of_the_repository_survives_the_config_map(stack: str) -> None:
    config = agent_config(load_file(STACKS / stack))

    assert parse(dump(config)) == config


def test_a_flow_over_a_tunnel_has_the_rate_of_one_tunnel() -> None:
    assert {name: link_rate(link) for name, link in load_file(STACKS / "Pulumi.prod.yaml").links.items()} == {
        "office": 1_250_000_000
    }
