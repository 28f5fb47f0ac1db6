"""The shipped tables are whole."""

from __future__ import annotations

from decimal import Decimal

from stacks.catalogue import catalogue
from stacks.quantities import parse_kube_name


def test_every_instance_type_names_a_known_gpu_and_a_price() -> None:
    known = catalogue()
    for row in known.instance_types.values():
        assert row.gpu in known.gpus, row
        assert row.gpus > 0
        assert row.cpus >= row.gpus
        assert all(Decimal("0.1") < price < 500 for price in row.usd_per_hour.values()), row


def test_short_gpu_names_are_distinct_and_fit_into_kubernetes_names() -> None:
    names = [gpu.name for gpu in catalogue().gpus.values()]
    assert len(set(names)) == len(names)
    for name in names:
        parse_kube_name(f"{name}-aws-on-demand")
