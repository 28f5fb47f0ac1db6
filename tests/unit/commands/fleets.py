"""Small fleets for the commands that read files alone; a test changes only what it is about."""

from __future__ import annotations

from pathlib import Path

SMALL = """\
config:
  gpufleet:fleet:
    schema_version: 1
    organization: acme
    clusters: {lab: {kind: existing}}
    pools:
      rack: {cluster: lab, location: onprem, gpu: h100-sxm-80gb, gpus_per_node: 8, nodes: 2, usd_per_gpu_hour: 1}
      spot: {cluster: lab, location: aws, provisioner: existing, market: spot, instance_types: [p5.48xlarge], max_gpus: 8, usd_per_gpu_hour: 2}
    classes: {P1: {priority: 100, default: true}}
    teams:
      vision: {quota: {h100-onprem: 12}, budget: {monthly: 400 USD}}
      nlp: {quota: {h100-onprem: 4}, budget: {monthly: 900 USD, kind: soft}}
    burst: {order: [spot], budget: {monthly: 1000 USD, kind: hard}}
"""
"""16 owned GPUs at $1, 8 rented ones at $2, two teams, and a hard budget of $1,000."""

_CLUSTER = "{kind: eks, region: us-east-1, version: '1.35', network: {vpc: 10.0.0.0/16}}"
_NODE_GROUP = (
    "      extra: {cluster: lab, location: aws, provisioner: node-group, market: on-demand, "
    "instance_types: [g6.12xlarge], nodes: {min: 1, max: 3}, usd_per_gpu_hour: 0.50}\n"
)


def changed(*replacements: tuple[str, str], text: str = SMALL) -> str:
    """The small fleet with some of its words replaced; every one of them must be there."""
    for old, new in replacements:
        assert old in text, old
        text = text.replace(old, new)
    return text


def rented(*, in_order: bool) -> str:
    """The fleet on EKS without its rack, and with a node group of 4 to 12 GPUs at $0.50.

    The group is in the burst order; or it shares its GPUs, which no queue offers.
    """
    text = changed(("{kind: existing}", _CLUSTER), ("{h100-onprem: 12}", "{}"), ("{h100-onprem: 4}", "{}"))
    text = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("      rack: "))
    group = _NODE_GROUP if in_order else _NODE_GROUP.replace("}\n", ", sharing: {time_slicing: {replicas: 2}}}\n")
    order = "[spot, extra]" if in_order else "[spot]"
    return changed(("    classes:", f"{group}    classes:"), ("[spot]", order), text=text)


def without_team(name: str, text: str = SMALL) -> str:
    """The small fleet without one of its teams."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith(f"      {name}: "))


def write(folder: Path, text: str, name: str = "Pulumi.small.yaml") -> str:
    """Put a stack file into a folder; returns its path as a person would type it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)
