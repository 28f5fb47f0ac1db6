"""The rules that need more than one part of the file; each is one function, so that a wrong file shows all at once."""

from __future__ import annotations

from typing import Final

from stacks.rules import advice, budgets, clusters, gpu_advice, gpu_software, gpus, naming, network, supply
from stacks.rules.rule import Rule, RuleProblem

RULES: Final[tuple[Rule, ...]] = (
    clusters.pools_name_a_known_cluster,
    clusters.pools_share_one_cluster,
    clusters.pools_can_be_in_their_cluster,
    clusters.pools_are_in_the_region_of_their_cluster,
    clusters.karpenter_is_there_for_its_pools,
    clusters.keda_is_there_for_scaling,
    clusters.the_gpu_operator_is_there_where_it_must,
    clusters.gke_partitions_its_pools_itself,
    clusters.scaled_targets_are_scaled_once,
    network.links_name_a_cluster_of_their_cloud,
    network.ranges_are_usable,
    network.networks_have_a_size_that_the_cloud_takes,
    network.ranges_of_a_cluster_are_apart,
    network.ranges_behind_a_link_are_apart_from_its_cluster,
    network.ranges_of_linked_clusters_are_apart,
    network.inside_addresses_are_unique,
    network.hybrid_nodes_are_behind_a_link,
    network.burst_data_names_a_link,
    supply.node_names_are_unique,
    supply.burst_order_names_cloud_pools_once,
    supply.burst_goes_to_whole_gpus,
    supply.list_prices_are_known,
    supply.flavors_are_one_kind_of_gpu,
    supply.queues_stay_within_the_limits_of_kueue,
    supply.limits_hold_a_node,
    supply.quotas_name_local_flavors,
    supply.quotas_fit_the_supply,
    supply.classes_have_somewhere_to_run,
    supply.schedules_start_what_a_cloud_pool_has,
    gpus.names_of_layouts_fit_a_label,
    gpus.one_strategy_for_each_operator,
    gpus.changes_of_mig_mode_are_planned,
    gpu_software.drivers_are_new_enough,
    gpu_software.kernel_modules_support_the_gpus,
    gpu_software.upgrades_begin_with_a_pool_that_takes_them,
    gpu_software.no_version_has_a_known_hole,
    gpu_software.operators_have_namespaces_of_their_own,
    gpu_software.readings_stop_while_mig_changes,
    gpus.claims_are_for_pools_that_can_have_them,
    gpus.one_device_interface_for_each_operator,
    gpus.joined_gpus_are_there,
    budgets.projects_name_known_teams,
    naming.team_names_are_legal,
    naming.queue_names_fit_a_label,
    naming.exactly_one_class_is_the_default,
    naming.class_names_are_legal,
    naming.the_image_is_pinned,
    naming.several_replicas_share_a_ledger,
    naming.replayed_time_spends_no_real_money,
)
"""What makes a file wrong."""

WARNINGS: Final[tuple[Rule, ...]] = (
    budgets.the_fleet_has_a_budget,
    budgets.budgets_within_the_fleet_can_be_reached,
    budgets.limits_of_shorter_periods_can_be_reached,
    budgets.teams_that_stay_local_have_no_limits,
    advice.instance_types_are_in_the_catalogue,
    advice.every_local_gpu_has_an_owner,
    advice.every_cluster_has_pools,
    advice.prices_are_plausible,
    advice.every_cloud_pool_has_a_queue,
    advice.slices_do_not_pass_for_gpus,
    advice.every_team_gets_slices,
    advice.waits_are_within_the_bounds_of_the_policy,
    advice.pools_of_a_flavor_stand_together,
    advice.notices_reach_a_node,
    advice.saving_fits_the_notice,
    gpu_advice.the_driver_can_place_the_layouts,
    gpu_advice.the_gpu_layer_is_carried_out,
    gpu_advice.the_operator_is_not_old,
    gpu_advice.rdma_has_somebody_to_offer_it,
    gpu_advice.the_gpu_layer_has_pools_to_serve,
    gpu_advice.autoscalers_see_what_nodes_will_offer,
)
"""What is probably not meant; `strict` makes them errors."""

NOTICES: Final[tuple[Rule, ...]] = (advice.settings_have_an_effect, gpu_advice.rdma_is_left_out_of_quotas)
"""What this version cannot do yet; no fault of the file, so that `strict` leaves them warnings."""

__all__ = ["NOTICES", "RULES", "WARNINGS", "Rule", "RuleProblem"]
