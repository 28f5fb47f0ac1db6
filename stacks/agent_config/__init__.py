"""What the agent is told: the part of the fleet that it needs, resolved, as one value that crosses in a ConfigMap.

The components write it and the agent reads it with the same model, so that neither can misread the other. It holds no
secret and no path of a machine.
"""

from __future__ import annotations

from typing import Final

import yaml

from stacks.agent import Ledger, ObjectStoreLedger
from stacks.agent_config.layouts import LayoutConfig, PoolLayoutConfig, RelayoutConfig
from stacks.agent_config.resolving import agent_config
from stacks.agent_config.values import AgentConfig, ClassConfig, DataConfig, EvictionConfig, FlavorConfig, TeamConfig

LEDGER_MOUNT: Final = "/var/lib/gpufleet/ledger"
"""Where the agent's pod mounts the claim of a volume ledger."""


def ledger_url(ledger: Ledger) -> str:
    """The store URL that the agent opens: the bucket, or the mounted claim."""
    return ledger.url if isinstance(ledger, ObjectStoreLedger) else f"file://{LEDGER_MOUNT}"


def dump(config: AgentConfig) -> str:
    """The text of the ConfigMap: YAML in a fixed order, so that equal fleets give equal text."""
    text: str = yaml.safe_dump(config.model_dump(mode="json", exclude_none=True), sort_keys=True, width=120)
    return text


def parse(text: str) -> AgentConfig:
    """Read the text of the ConfigMap.

    Raises:
        pydantic.ValidationError: when it is not a configuration of this version.
        yaml.YAMLError: when it is not YAML.
    """
    return AgentConfig.model_validate(yaml.safe_load(text))


__all__ = [
    "LEDGER_MOUNT",
    "AgentConfig",
    "ClassConfig",
    "DataConfig",
    "EvictionConfig",
    "FlavorConfig",
    "LayoutConfig",
    "PoolLayoutConfig",
    "RelayoutConfig",
    "TeamConfig",
    "agent_config",
    "dump",
    "ledger_url",
    "parse",
]
