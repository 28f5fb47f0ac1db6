"""The agent reads exactly what the components wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from stacks.agent_config import AgentConfig, agent_config, dump, parse
from stacks.flavors import flavors_of_pools
from stacks.load import load_file

FLEET = load_file(Path(__file__).parents[3] / "stacks" / "Pulumi.local.yaml")


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
    assert config.dearest_burst_price == config.flavors["h100-aws-on-demand"].usd_per_gpu_hour


def test_the_models_hold_no_default_that_a_config_map_could_lose() -> None:
    thin = AgentConfig.model_fields
    assert thin["replay_speed"].default == 1.0
