"""The named MIG layouts and configurations of the device plugin, each in a ConfigMap beside the operator.

Which node has which says the node's label (`stacks.layouts`). A ConfigMap of layouts replaces the one that the operator
makes by itself, so it always holds `all-disabled` too.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

from components.names import Manifest, manifest
from stacks.fleet import Fleet
from stacks.layouts import mig_configs, operator_is_ours, plugin_configs, served_pools

LAYOUTS_NAME: Final = "gpufleet-mig-layouts"
PLUGIN_NAME: Final = "gpufleet-device-plugin"

_LAYOUTS_KEY: Final = "config.yaml"
"""The only key that the MIG manager looks for."""


def manifests(fleet: Fleet) -> dict[str, Manifest]:
    """Both where gpufleet installs the operator; beside another's each where a pool needs it."""
    pools, ours = served_pools(fleet).values(), operator_is_ours(fleet)
    objects: dict[str, Manifest] = {}
    if ours or any(pool.mig is not None for pool in pools):
        layouts = {"version": "v1", "mig-configs": mig_configs(fleet)}
        objects["mig-layouts"] = _config_map(fleet, LAYOUTS_NAME, {_LAYOUTS_KEY: _text(layouts)})
    if ours or any(pool.partitioned for pool in pools):
        texts = {name: _text(config) for name, config in plugin_configs(fleet).items()}
        objects["device-plugin"] = _config_map(fleet, PLUGIN_NAME, texts)
    return objects


def _config_map(fleet: Fleet, name: str, data: dict[str, str]) -> Manifest:
    return manifest("v1", "ConfigMap", name, namespace=fleet.gpu_layer.operator.namespace, data=data)


def _text(content: Any) -> str:
    text: str = yaml.safe_dump(content, sort_keys=False, width=120)
    return text
