"""For every rule one file that breaks it and one that is close to it and right, as changes of an ordinary file.

A change maps the path of a setting, with dots, to its new value; `REMOVED` takes the setting away.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from stacks.rules import Rule, advice, budgets, clusters, gpu_advice, gpu_software, gpus, naming, network, supply

REMOVED: Final = object()

ORDINARY: Final[dict[str, Any]] = yaml.safe_load(
    """
    schema_version: 1
    organization: acme
    clusters:
      use:
        kind: eks
        region: us-east-1
        version: "1.35"
        network: {vpc: 10.0.0.0/16}
        hybrid: {nodes: 10.200.0.0/16, pods: 10.201.0.0/16}
        software: {kueue: managed, gpu_operator: managed, karpenter: managed, keda: managed}
    links:
      office: {kind: aws-vpn, cluster: use, peer: {address: 203.0.113.7, asn: 65010, cidrs: [10.200.0.0/15]}}
    pools:
      rack: {cluster: use, location: onprem, gpu: h100-sxm-80gb, gpus_per_node: 8, nodes: 2, node_names: [rack-0, rack-1], usd_per_gpu_hour: 1.10}
      spot: {cluster: use, location: aws, provisioner: karpenter, market: spot, instance_types: [p5.48xlarge], max_gpus: 16, usd_per_gpu_hour: 3.50}
      od:   {cluster: use, location: aws, provisioner: karpenter, market: on-demand, instance_types: [p5.48xlarge], max_gpus: 8}
    classes:
      P0: {priority: 1000, max_wait: 5m}
      P1: {priority: 100, default: true}
    teams:
      vision: {quota: {h100-onprem: 10}, budget: {monthly: 100 USD}}
      nlp:    {quota: {h100-onprem: 6}, budget: {monthly: 100 USD}}
    burst:
      order: [spot, od]
      budget: {monthly: 200 USD, daily: 50 USD}
    """
)

GKE: Final[dict[str, Any]] = {
    "kind": "gke",
    "project": "acme-ml",
    "region": "us-central1",
    "version": "1.35",
    "network": {"nodes": "10.64.0.0/20", "pods": "10.68.0.0/14", "services": "10.72.0.0/20"},
}
EKS: Final[dict[str, Any]] = {
    "kind": "eks",
    "region": "us-west-2",
    "version": "1.35",
    "network": {"vpc": "10.32.0.0/16"},
}
SCALED: Final[dict[str, Any]] = {
    "target": "deployment/llm",
    "trigger": {"kind": "rabbitmq", "queue": "requests", "length": 10},
}
NODE_GROUP: Final[dict[str, Any]] = {
    "cluster": "use",
    "location": "aws",
    "provisioner": "node-group",
    "market": "on-demand",
    "instance_types": ["p5.48xlarge"],
    "nodes": {"max": 1},
}
GKE_POOL: Final[dict[str, Any]] = {
    "cluster": "gke",
    "location": "gcp",
    "provisioner": "node-pool",
    "market": "spot",
    "machine_type": "a3-highgpu-8g",
    "nodes": {"max": 1},
    "usd_per_gpu_hour": 4,
}
LENT: Final[dict[str, Any]] = {
    "cluster": "use",
    "location": "broker",
    "provider": "northgpu",
    "market": "on-demand",
    "shape": {"gpu": "a100-sxm-80gb", "gpus_per_node": 8, "cpus_per_node": 96, "memory_per_node": "1Ti"},
    "max_gpus": 8,
    "usd_per_gpu_hour": 2,
}
RACK: Final[dict[str, Any]] = {
    "cluster": "use",
    "location": "onprem",
    "gpu": "h100-sxm-80gb",
    "gpus_per_node": 8,
    "nodes": 1,
    "usd_per_gpu_hour": 1,
}
EQUAL: Final[dict[str, Any]] = {"strategy": "single", "layout": {"0-7": ["7x1g.10gb"]}}
SLICES: Final[dict[str, Any]] = {**RACK, "mig": {"layout": {"0-7": ["3g.40gb", "4x1g.10gb"]}}}
AMPERE: Final[dict[str, Any]] = {**SLICES, "gpu": "a100-sxm-80gb"}
UNREACHED: Final = ["4g.40gb", "1g.20gb", "2x1g.10gb"]
LONG_POOL: Final = "a-pool-with-a-name-that-leaves-just-enough-room-for-it"
UPGRADE: Final[dict[str, Any]] = {"version": "580", "upgrade": {"version": "595.91.07", "canary": "rack"}}
LONG: Final = "a-team-with-a-name-that-is-far-too-long"
PREWARM: Final[dict[str, Any]] = {"pool": "od", "gpus": 8, "at": "08:00", "for": "10h"}
VPN: Final[dict[str, Any]] = deepcopy(ORDINARY["links"]["office"])


def all_on_gke(**pool: Any) -> dict[str, Any]:
    """The ordinary file moved to Google Cloud, with one pool."""
    return {
        "clusters": {"gke": GKE},
        "links": REMOVED,
        "pools": {"spot": {**GKE_POOL, **pool}},
        "teams.vision.quota": {},
        "teams.nlp.quota": {},
        "burst.order": ["spot"],
    }


@dataclass(frozen=True)
class Case:
    """`wrong` breaks the rule at `path` with `words` in the reason; `right` does not."""

    rule: Rule
    wrong: dict[str, Any]
    path: str
    words: str
    right: dict[str, Any] = field(default_factory=dict)


RULE_CASES: Final = (
    Case(clusters.pools_name_a_known_cluster, {"pools.rack.cluster": "usa"}, "pools.rack.cluster", "did you mean use?"),
    Case(
        clusters.pools_share_one_cluster,
        {"clusters.usw": EKS, "pools.spot.cluster": "usw"},
        "pools.spot.cluster",
        "other pools are in use",
        {"clusters.usw": EKS},
    ),
    Case(
        clusters.pools_can_be_in_their_cluster,
        {"clusters.use.hybrid": REMOVED},
        "pools.rack.cluster",
        "set hybrid on the cluster",
        {"clusters.use.hybrid": REMOVED, "pools.rack": REMOVED, "teams.vision.quota": {}, "teams.nlp.quota": {}},
    ),
    Case(
        clusters.pools_are_in_the_region_of_their_cluster,
        {"pools.spot.region": "us-west-2"},
        "pools.spot.region",
        "the cluster use is in us-east-1",
        {"pools.spot.region": "us-east-1"},
    ),
    Case(
        clusters.karpenter_is_there_for_its_pools,
        {"clusters.use.software.karpenter": "skip", "pools.od.provisioner": "existing"},
        "pools.spot.provisioner",
        "set it to managed or existing",
        {"clusters.use.software.karpenter": "existing"},
    ),
    Case(
        clusters.keda_is_there_for_scaling,
        {"clusters.use.software.keda": "skip", "scaling": {"llm": SCALED}},
        "scaling",
        "software.keda is skip",
        {"scaling": {"llm": SCALED}},
    ),
    Case(
        clusters.the_gpu_operator_is_there_where_it_must,
        {"clusters.use.software.gpu_operator": "skip"},
        "pools.rack.location",
        "software.gpu_operator is skip",
        {"clusters.use.software.gpu_operator": "existing"},
    ),
    Case(
        clusters.gke_partitions_its_pools_itself,
        {**all_on_gke(), "clusters.gke.software": {"kueue": "managed", "gpu_operator": "managed"}},
        "clusters.gke.software.gpu_operator",
        "GKE installs driver and device plugin itself",
        all_on_gke(),
    ),
    Case(
        clusters.scaled_targets_are_scaled_once,
        {"scaling": {"one": SCALED, "two": SCALED}},
        "scaling.two.target",
        "is scaled by one already",
        {"scaling": {"one": SCALED, "two": {**SCALED, "namespace": "other"}}},
    ),
    Case(
        network.links_name_a_cluster_of_their_cloud,
        {"links.office.cluster": "used"},
        "links.office.cluster",
        "did you mean use?",
    ),
    Case(
        network.ranges_are_usable,
        {"links.office.peer.cidrs": ["10.200.0.0/15", "169.254.0.0/24"]},
        "links.office.peer.cidrs.1",
        "link-local",
        {"links.office.peer.cidrs": ["10.200.0.0/15", "192.168.7.0/24"]},
    ),
    Case(
        network.networks_have_a_size_that_the_cloud_takes,
        {"clusters.use.network.vpc": "10.0.0.0/12"},
        "clusters.use.network.vpc",
        "from /16 to /28",
        {"clusters.use.network.vpc": "10.0.0.0/20"},
    ),
    Case(
        network.ranges_of_a_cluster_are_apart,
        {"clusters.use.network.services": "10.0.128.0/20"},
        "clusters.use.network.services",
        "overlaps 10.0.0.0/16",
        {"clusters.use.network.services": "10.100.0.0/16"},
    ),
    Case(
        network.ranges_behind_a_link_are_apart_from_its_cluster,
        {"links.office.peer.cidrs": ["10.200.0.0/15", "10.0.4.0/24"]},
        "links.office.peer.cidrs.1",
        "overlaps 10.0.0.0/16",
    ),
    Case(
        network.ranges_of_linked_clusters_are_apart,
        {
            "clusters.gke": {**GKE, "network": {**GKE["network"], "nodes": "10.0.64.0/20"}},
            "links.pair": {"kind": "aws-gcp", "aws_cluster": "use", "gcp_cluster": "gke"},
        },
        "clusters.gke.network.nodes",
        "overlaps 10.0.0.0/16",
        {"clusters.gke": GKE, "links.pair": {"kind": "aws-gcp", "aws_cluster": "use", "gcp_cluster": "gke"}},
    ),
    Case(
        network.inside_addresses_are_unique,
        {
            "links.office.tunnels": [{"inside": "169.254.10.0/30"}, {}],
            "links.lab": {**VPN, "tunnels": [{}, {"inside": "169.254.10.0/30"}]},
        },
        "links.lab.tunnels.1.inside",
        "used by link office",
        {
            "links.office.tunnels": [{"inside": "169.254.10.0/30"}, {}],
            "links.lab": {**VPN, "tunnels": [{}, {"inside": "169.254.11.0/30"}]},
        },
    ),
    Case(
        network.hybrid_nodes_are_behind_a_link,
        {"links.office.peer.cidrs": ["10.200.0.0/16"]},
        "clusters.use.hybrid.pods",
        "no link of use leads to 10.201.0.0/16",
        {"links.office.peer.cidrs": ["10.200.0.0/16", "10.201.0.0/16"]},
    ),
    Case(
        network.burst_data_names_a_link,
        {"burst.data": {"link": "offices", "max_staging": "30m"}},
        "burst.data.link",
        "did you mean office?",
        {"burst.data": {"link": "office", "max_staging": "30m"}},
    ),
    Case(
        supply.node_names_are_unique,
        {"pools.more": {**ORDINARY["pools"]["rack"], "nodes": 1, "node_names": ["rack-1"]}},
        "pools.more.node_names.0",
        "rack-1 is in pool rack already",
        {"pools.more": {**ORDINARY["pools"]["rack"], "nodes": 1, "node_names": ["rack-2"]}},
    ),
    Case(supply.burst_order_names_cloud_pools_once, {"burst.order": ["spot"]}, "pools.od", "in no burst.order"),
    Case(
        supply.burst_goes_to_whole_gpus,
        {
            "pools.small": {**NODE_GROUP, "sharing": {"time_slicing": {"replicas": 2}}},
            "burst.order": ["spot", "od", "small"],
        },
        "burst.order.2",
        "partitioned",
        {"pools.small": NODE_GROUP, "burst.order": ["spot", "od", "small"]},
    ),
    Case(
        supply.list_prices_are_known,
        {"clusters.use.region": "eu-west-9"},
        "pools.od",
        "no list price of p5.48xlarge in eu-west-9",
        {"clusters.use.region": "eu-west-9", "pools.od.usd_per_gpu_hour": 9},
    ),
    Case(
        supply.flavors_are_one_kind_of_gpu,
        {
            "pools.spot.instance_types": ["p4d.24xlarge"],
            "pools.lent": {**LENT, "provider": "40gb-aws", "market": "spot"},
            "burst.order": ["spot", "od", "lent"],
        },
        "pools.lent",
        "called a100-40gb-aws-spot like that of pool spot",
        {"pools.lent": LENT, "burst.order": ["spot", "od", "lent"]},
    ),
    Case(
        supply.queues_stay_within_the_limits_of_kueue,
        {f"pools.lent-{index}": {**LENT, "provider": f"broker-{index}"} for index in range(62)}
        | {"burst.order": ["spot", "od", *(f"lent-{index}" for index in range(62))]},
        "pools",
        "make 65 flavors",
        {f"pools.lent-{index}": {**LENT, "provider": f"broker-{index}"} for index in range(61)}
        | {"burst.order": ["spot", "od", *(f"lent-{index}" for index in range(61))]},
    ),
    Case(
        supply.limits_hold_a_node,
        {"pools.od.max_gpus": 7},
        "pools.od.max_gpus",
        "less than the 8 GPUs of one node",
        {"pools.od.max_gpus": 0},
    ),
    Case(
        supply.quotas_name_local_flavors,
        {"teams.vision.borrow": {"h100-aws-spot": 1}},
        "teams.vision.borrow.h100-aws-spot",
        "limit it with max_burst_gpus",
        {"teams.vision.borrow": {"h100-onprem": 1}},
    ),
    Case(supply.quotas_fit_the_supply, {"teams.nlp.quota": {"h100-onprem": 7}}, "teams", "sum to 17 GPUs"),
    Case(
        supply.classes_have_somewhere_to_run,
        {"classes.P0.markets": ["onprem", "reserved"]},
        "classes.P0.markets.1",
        "no pool has reserved",
        {"classes.P0.markets": ["onprem", "on-demand"]},
    ),
    Case(
        supply.schedules_start_what_a_cloud_pool_has,
        {"capacity": {"schedule": {"mornings": {**PREWARM, "gpus": 16}}}},
        "capacity.schedule.mornings.gpus",
        "at most 8 GPUs",
        {"capacity": {"schedule": {"mornings": PREWARM}}},
    ),
    Case(
        gpus.names_of_layouts_fit_a_label,
        {f"pools.{LONG_POOL}x": SLICES},
        f"pools.{LONG_POOL}x",
        "take 1 off the name of the pool",
        {f"pools.{LONG_POOL}": SLICES, f"pools.{LONG_POOL}-whole": RACK},
    ),
    Case(
        gpus.one_strategy_for_each_operator,
        {"pools.slices": SLICES, "pools.equal": {**AMPERE, "mig": EQUAL}},
        "pools.equal.mig.strategy",
        "pool slices has mixed",
        {"pools.slices": {**SLICES, "mig": EQUAL}, "pools.equal": {**AMPERE, "mig": EQUAL}},
    ),
    Case(
        gpus.changes_of_mig_mode_are_planned,
        {"pools.slices": AMPERE, "gpu_layer": {"relayout": {}}},
        "gpu_layer.relayout",
        "say what a node takes",
        {"pools.slices": AMPERE, "gpu_layer": {"relayout": {"mode_change": "reboot"}}},
    ),
    Case(
        gpu_software.drivers_are_new_enough,
        {"pools.rack.gpu": "b200-sxm-180gb", "gpu_layer": {"driver": {"version": "565.57.01"}}},
        "gpu_layer.driver.version",
        "needs driver 570 or newer",
        {"gpu_layer": {"driver": {"version": "570.86.15"}}},
    ),
    Case(
        gpu_software.kernel_modules_support_the_gpus,
        {"pools.rack.driver": {"kernel_module": "open", "version": "580"}, "pools.rack.gpu": "v100-sxm-32gb"},
        "pools.rack.driver.kernel_module",
        "takes proprietary",
        {"pools.rack.driver": {"kernel_module": "open"}},
    ),
    Case(
        gpu_software.upgrades_begin_with_a_pool_that_takes_them,
        {"pools.rack.driver": {"preinstalled": True}, "gpu_layer": {"driver": UPGRADE}},
        "gpu_layer.driver.upgrade.canary",
        "the upgrade would not reach it",
        {"gpu_layer": {"driver": UPGRADE}},
    ),
    Case(
        gpu_software.no_version_has_a_known_hole,
        {"gpu_layer": {"toolkit": "1.17.7"}},
        "gpu_layer.toolkit",
        "use v1.17.8 or newer",
        {"gpu_layer": {"toolkit": "1.17.8", "operator": {"version": "v26.3.0"}}},
    ),
    Case(
        gpu_software.operators_have_namespaces_of_their_own,
        {"gpu_layer": {"network_operator": {"namespace": "gpu-operator"}}},
        "gpu_layer.network_operator.namespace",
        "is the GPU Operator's already",
        {"gpu_layer": {"network_operator": {}, "operator": {"namespace": "nvidia"}}},
    ),
    Case(
        gpu_software.readings_stop_while_mig_changes,
        {"gpu_layer": {"readings": True, "operator": {"version": "v26.3.2"}}},
        "gpu_layer.readings",
        "v26.7.0 or newer",
        {"gpu_layer": {"readings": True}},
    ),
    Case(
        gpus.claims_are_for_pools_that_can_have_them,
        {"pools.spot.device_interface": "dra"},
        "pools.spot.device_interface",
        "would start no node for them",
        {"pools.rack.device_interface": "dra", "clusters.use.software.gpu_operator": "existing"},
    ),
    Case(
        gpus.one_device_interface_for_each_operator,
        {"pools.claimed": {**RACK, "device_interface": "dra"}},
        "pools.claimed.device_interface",
        "a GPU Operator installs one",
        {"pools.claimed": {**RACK, "device_interface": "dra"}, "clusters.use.software.gpu_operator": "existing"},
    ),
    Case(
        gpus.joined_gpus_are_there,
        {"classes.P0.interconnect": "nvlink", "pools.slices": {**SLICES, "mig": EQUAL}},
        "classes.P0.interconnect",
        "use mixed there",
        {"classes.P0.interconnect": "nvlink", "pools.slices": SLICES},
    ),
    Case(
        budgets.projects_name_known_teams,
        {"projects.grant": {"teams": ["vision", "vison"], "budget": {"weekly": "10 USD"}}},
        "projects.grant.teams.1",
        "no such team; did you mean vision?",
        {"projects.grant": {"teams": ["vision"], "budget": {"weekly": "10 USD"}}},
    ),
    Case(
        naming.team_names_are_legal,
        {"teams.nlp-burst": {"quota": {}}},
        "teams.nlp-burst",
        "queues of ours",
        {"teams.nlp-bursts": {"quota": {}}},
    ),
    Case(
        naming.queue_names_fit_a_label,
        {f"teams.{LONG}": {"quota": {}}},
        f"teams.{LONG}",
        "for flavor h100-aws-on-demand would have a name of 64 characters, and a label takes 63; take 1 off the name of the",
        {f"teams.{LONG[:-1]}": {"quota": {}}},
    ),
    Case(
        naming.exactly_one_class_is_the_default,
        {"classes.P0.default": True},
        "classes.P1.default",
        "P0 is the default already",
    ),
    Case(
        naming.class_names_are_legal,
        {"classes.p0": {"priority": 1}},
        "classes.p0",
        "only in case",
        {"classes.p2": {"priority": 1}},
    ),
    Case(
        naming.the_image_is_pinned,
        {"agent": {"image": "registry.example/agent:latest"}},
        "agent.image",
        "pin a tag",
        {"agent": {"image": "registry.example:5000/agent:1.2.3"}},
    ),
    Case(
        naming.several_replicas_share_a_ledger,
        {"agent": {"replicas": 2}},
        "agent.replicas",
        "object-store",
        {"agent": {"replicas": 2, "ledger": {"kind": "object-store", "url": "s3://acme/ledger"}}},
    ),
    Case(
        naming.replayed_time_spends_no_real_money,
        {"agent": {"replay_speed": 60}},
        "agent.replay_speed",
        "must be 1 where money is real",
        {"agent": {"replay_speed": 1}},
    ),
)

WARNING_CASES: Final = (
    Case(
        budgets.the_fleet_has_a_budget,
        {"burst.budget": REMOVED, "teams.nlp.budget": REMOVED},
        "burst",
        "team nlp",
        {"burst.budget": REMOVED, "teams.nlp.budget": REMOVED, "teams.nlp.policy": {"kind": "never"}},
    ),
    Case(
        budgets.budgets_within_the_fleet_can_be_reached,
        {"teams.nlp.budget": {"monthly": "300 USD"}},
        "teams.nlp.budget.monthly",
        "more than the whole fleet's monthly $200.00",
    ),
    Case(
        budgets.limits_of_shorter_periods_can_be_reached,
        {"teams.nlp.budget": {"weekly": "30 USD", "daily": "40 USD"}},
        "teams.nlp.budget.daily",
        "more than weekly, $30.00",
        {"teams.nlp.budget": {"weekly": "30 USD", "daily": "30 USD"}},
    ),
    Case(
        budgets.teams_that_stay_local_have_no_limits,
        {"teams.nlp.policy": {"kind": "never"}},
        "teams.nlp.budget",
        "the team's policy is never",
        {"teams.nlp.policy": {"kind": "never"}, "teams.nlp.budget": REMOVED},
    ),
    Case(
        advice.instance_types_are_in_the_catalogue,
        {
            "pools.od.instance_types": ["p9.48xlarge"],
            "pools.od.usd_per_gpu_hour": 5,
            "pools.od.shape": {
                "gpu": "h100-sxm-80gb",
                "gpus_per_node": 8,
                "cpus_per_node": 192,
                "memory_per_node": "2Ti",
            },
        },
        "pools.od.instance_types",
        "p9.48xlarge is not in the catalogue",
    ),
    Case(
        advice.every_local_gpu_has_an_owner,
        {"teams.nlp.quota": {}},
        "pools.rack",
        "6 of the 16 GPUs of h100-onprem",
    ),
    Case(advice.every_cluster_has_pools, {"clusters.usw": EKS}, "clusters.usw", "no pool is in it"),
    Case(
        advice.prices_are_plausible,
        {"pools.spot.usd_per_gpu_hour": 55.04},
        "pools.spot.usd_per_gpu_hour",
        "is the price of a whole instance",
    ),
    Case(
        advice.every_cloud_pool_has_a_queue,
        {"pools.small": {**NODE_GROUP, "sharing": {"time_slicing": {"replicas": 2}}}},
        "pools.small",
        "no queue offers its partitioned GPUs",
        {"pools.small": NODE_GROUP, "burst.order": ["spot", "od", "small"]},
    ),
    Case(
        advice.slices_do_not_pass_for_gpus,
        {"pools.rack.mig": {"strategy": "single", "layout": {"0-7": ["7x1g.10gb"]}}, "teams.vision.quota": {}, "teams.nlp.quota": {}},
        "pools.rack.mig.strategy",
        "count as GPUs",
        {"pools.rack.mig": {"strategy": "mixed", "layout": {"0-7": ["7x1g.10gb"]}}, "teams.vision.quota": {}, "teams.nlp.quota": {}},
    ),
    Case(
        advice.every_team_gets_slices,
        {"pools.rack.mig": {"layout": {"0": ["3g.40gb"]}}, "teams.vision.quota": {"h100-mig-onprem": 14}, "teams.nlp.quota": {"h100-mig-onprem": 2}},
        "teams.nlp.quota.h100-mig-onprem",
        "less than one nvidia.com/",
        {"pools.rack.mig": {"layout": {"0": ["3g.40gb"]}}, "teams.vision.quota": {"h100-mig-onprem": 8}, "teams.nlp.quota": {"h100-mig-onprem": 8}},
    ),
    Case(
        advice.waits_are_within_the_bounds_of_the_policy,
        {"classes.P0.max_wait": "100d"},
        "classes.P0.max_wait",
        "longer than the 2h",
    ),
    Case(
        advice.pools_of_a_flavor_stand_together,
        {"pools.more": {**ORDINARY["pools"]["od"]}, "burst.order": ["od", "spot", "more"]},
        "burst.order.2",
        "tried together with od",
        {"pools.more": {**ORDINARY["pools"]["od"]}, "burst.order": ["od", "more", "spot"]},
    ),
    Case(
        advice.notices_reach_a_node,
        {"eviction": {"gcp_notice": "120s"}},
        "eviction.gcp_notice",
        "no pool is on Google Cloud",
        {**all_on_gke(), "eviction": {"gcp_notice": "120s"}},
    ),
    Case(
        advice.saving_fits_the_notice,
        {"spot.checkpoint.grace": "110s"},
        "spot.checkpoint.grace",
        "longer than the 1m45s that a job on h100-aws-spot has",
        {"spot.checkpoint.grace": "105s"},
    ),
    Case(
        gpu_advice.the_driver_can_place_the_layouts,
        {"pools.slices": {**RACK, "mig": {"layout": {"0-7": UNREACHED}}}},
        "pools.slices.mig.layout.0-7",
        "fits only where places are given",
        {"pools.slices": SLICES},
    ),
    Case(
        gpu_advice.the_gpu_layer_is_carried_out,
        {"clusters.use.software.gpu_operator": "existing", "gpu_layer": {"toolkit": "v1.19.0"}},
        "gpu_layer.toolkit",
        "is not managed",
        {"gpu_layer": {"toolkit": "v1.19.0"}},
    ),
    Case(
        gpu_advice.the_operator_is_not_old,
        {"gpu_layer": {"operator": {"version": "v25.10.1"}}},
        "gpu_layer.operator.version",
        "go up in steps",
        {"gpu_layer": {"operator": {"version": "v26.3.0"}}},
    ),
    Case(
        gpu_advice.rdma_has_somebody_to_offer_it,
        {"pools.rack.rdma": {"fabric": "roce"}},
        "pools.rack.rdma",
        "somebody else must offer it",
        {"pools.rack.rdma": {"fabric": "roce"}, "gpu_layer": {"network_operator": {}}},
    ),
    Case(
        gpu_advice.the_gpu_layer_has_pools_to_serve,
        {"gpu_layer": {"relayout": {}}},
        "gpu_layer.relayout",
        "changes nothing",
        {"gpu_layer": {"relayout": {}}, "pools.slices": SLICES},
    ),
    Case(
        gpu_advice.autoscalers_see_what_nodes_will_offer,
        {"pools.group": {**NODE_GROUP, "sharing": {"mps": {"replicas": 2}}}},
        "pools.group.nodes.min",
        "for a slice or a share",
        {"pools.group": {**NODE_GROUP, "sharing": {"mps": {"replicas": 2}}, "nodes": {"min": 1, "max": 1}}},
    ),
)  # fmt: skip

NOTICE_CASES: Final = (
    Case(
        advice.settings_have_an_effect,
        {"burst.data": {"link": "office", "max_staging": "1h"}},
        "links.office",
        "does not make the link",
        {"links.office": {"kind": "existing", "cluster": "use", "bandwidth": "1 Gbps", "cidrs": ["10.200.0.0/15"]},
         "burst.data": {"link": "office", "max_staging": "1h"}},
    ),
    Case(
        gpu_advice.rdma_is_left_out_of_quotas,
        {"pools.rack.rdma": {"fabric": "roce"}},
        "pools.rack.rdma",
        "excludeResourcePrefixes: [rdma/]",
    ),
)  # fmt: skip


def changed(changes: dict[str, Any]) -> dict[str, Any]:
    """A copy of the ordinary file with the changes made."""
    result = deepcopy(ORDINARY)
    for path, value in changes.items():
        *parents, last = path.split(".")
        here = result
        for part in parents:
            here = here.setdefault(part, {})
        if value is REMOVED:
            here.pop(last, None)
        else:
            here[last] = deepcopy(value)
    return result
