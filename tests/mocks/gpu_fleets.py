"""Fleets with every part of the GPU layer."""

from __future__ import annotations

from typing import Final

from stacks.fleet import Fleet
from stacks.load import load_text
from tests.mocks.environments import LOCAL

NCCL: Final = '<system version="1"><cpu numaid="0"/></system>'

POOLS: Final = f"""\
      rack:   {{cluster: lab, location: onprem, gpu: h100-sxm-80gb, gpus_per_node: 8, nodes: 2, node_names: [rack-0, rack-1], usd_per_gpu_hour: 1.10,
               kubelet: {{reserved_cpus: "0-3,64-67"}}, nccl_topology: '{NCCL}', rdma: {{fabric: infiniband, interface: ibs1f0, addresses: 192.168.8.0/22}}}}
      slices: {{cluster: lab, location: onprem, gpu: a100-sxm-40gb, gpus_per_node: 8, nodes: 1, node_names: [slices-0], usd_per_gpu_hour: 0.60,
               mig: {{layout: {{"0-5": [3g.20gb, 2g.10gb, 2x1g.5gb], "6": [7x1g.5gb]}}, former: {{"0-7": [7x1g.5gb]}}}},
               sharing: {{time_slicing: {{by_profile: {{1g.5gb: 4}}}}}}}}
      old:    {{cluster: lab, location: onprem, gpu: v100-sxm-32gb, gpus_per_node: 4, nodes: 1, node_names: [old-0], usd_per_gpu_hour: 0.20,
               driver: {{version: "580.65.06", kernel_module: proprietary}}, sharing: {{mps: {{replicas: 8}}}}}}
      image:  {{cluster: lab, location: onprem, gpu: l4-24gb, gpus_per_node: 4, nodes: 1, node_names: [image-0], usd_per_gpu_hour: 0.20, driver: {{preinstalled: true}}}}
"""
AUTOSCALED: Final = """\
      auto:   {cluster: lab, location: aws, provisioner: karpenter, market: on-demand, region: us-east-1, instance_types: [p5.48xlarge], max_gpus: 16,
               mig: {layout: {"0-7": [3g.40gb, 4x1g.10gb]}}, sharing: {time_slicing: {replicas: 2}}}
"""

LAYER: Final = """\
    gpu_layer:
      driver: {version: "580.65.06", upgrade: {version: "595.91.07", canary: slices}, automatic: true, most_nodes: 2}
      exporter: {interval: 10s, extra_metrics: {DCGM_FI_DEV_POWER_VIOLATION: counter}, pod_labels: ["^app$"]}
      network_operator: {pods_per_card: 16}
"""


def gpu_fleet(layer: str = LAYER, operator: str = "managed", *, autoscaled: bool = True) -> Fleet:
    """The local fleet with these pools and settings; no component makes the autoscaled one yet."""
    lines = LOCAL.read_text().splitlines(keepends=True)
    text = "".join(line for line in lines if not line.lstrip().startswith("rack:"))
    software = f"{{kueue: existing, gpu_operator: {operator}, karpenter: existing, prometheus: existing}}"
    text = text.replace("lab: {kind: existing}", f"lab: {{kind: existing, software: {software}}}")
    text = text.replace("replay_speed: 60", "replay_speed: 1")  # Karpenter's nodes cost money
    text = text.replace("    pools:\n", f"    pools:\n{POOLS}{AUTOSCALED * autoscaled}").replace(
        "    classes:\n", f"{layer}    classes:\n"
    )
    return load_text(text, "gpus")
