"""What the file says of GPUs beside an operator of somebody else's, or for nobody: what is refused, and what is said."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from stacks.fleet import Fleet
from stacks.rules import WARNINGS
from tests.unit.stacks.rules.cases import GKE_POOL, SLICES, all_on_gke, changed

THEIRS = {"clusters.use.software.gpu_operator": "existing"}
VOLTA = {"pools.rack.gpu": "v100-sxm-32gb", "teams.vision.quota": {}, "teams.nlp.quota": {}}
MINE = {"operator": {"namespace": "kube-system"}}


def warned(changes: dict[str, Any]) -> list[str]:
    fleet = Fleet.model_validate(changed(changes))
    return [".".join(map(str, found.path)) for rule in WARNINGS for found in rule(fleet)]


def test_a_driver_that_gpufleet_does_not_install_is_only_judged_where_the_file_names_it() -> None:
    Fleet.model_validate(changed(THEIRS | VOLTA))
    for named in ({"pools.rack.driver": {"version": "595.91.07"}}, {"gpu_layer": {"driver": {"version": "595.91.07"}}}):
        with pytest.raises(ValidationError, match="drivers after 580 do not support"):
            Fleet.model_validate(changed(THEIRS | VOLTA | named))


def test_a_driver_beside_an_operator_of_somebody_elses_is_said_to_do_nothing() -> None:
    assert "pools.rack.driver" in warned(THEIRS | {"pools.rack.driver": {"version": "580"}})
    assert "pools.rack.driver" not in warned(THEIRS | {"pools.rack.driver": {"preinstalled": True}})
    assert "pools.rack.driver" not in warned({"pools.rack.driver": {"version": "580"}})


def test_readings_and_relayout_without_a_pool_to_serve_are_said_to_do_nothing() -> None:
    google = all_on_gke(mig={"strategy": "single", "layout": {"0-7": ["7x1g.10gb"]}}) | {"burst.order": ["whole"]}
    google["pools"] |= {"whole": GKE_POOL}
    layer = {"gpu_layer": {"readings": True, "relayout": {}}}
    assert {"gpu_layer.readings", "gpu_layer.relayout"} <= set(warned(google | layer))
    assert not {"gpu_layer.readings", "gpu_layer.relayout"} & set(warned({"pools.slices": SLICES} | layer))


def test_an_operator_of_ours_stays_out_of_namespaces_of_the_system_and_another_may_be_there() -> None:
    with pytest.raises(ValidationError, match="is the system's already"):
        Fleet.model_validate(changed({"gpu_layer": MINE}))
    Fleet.model_validate(changed(THEIRS | {"gpu_layer": MINE}))
