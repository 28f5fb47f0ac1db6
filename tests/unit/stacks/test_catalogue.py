"""The shipped tables are whole, plausible, and equal to the data they were made from."""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from stacks.catalogue import (
    PROVIDERS,
    Accelerator,
    GpuModel,
    InstanceType,
    MigGeometry,
    Provenance,
    accelerator_of,
    catalogue,
    profile_name,
)
from stacks.catalogue.tables import read_table

DATA = Path(__file__).parents[3].parent / "shared" / "data"
GPUS = list(catalogue().gpus.values())
TYPES = list(catalogue().instance_types.values())
MARKETS = {"spot", "on-demand", "reserved", "capacity-block", "flex-start"}


def data(*parts: str) -> Path:
    path = DATA.joinpath(*parts)
    if not path.exists():
        pytest.skip("the data that the tables were made from are not beside this checkout")
    return path


def rows(path: Path) -> list[dict[str, str]]:
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


@pytest.mark.parametrize("row", TYPES, ids=lambda row: row.id)
def test_an_instance_type_is_whole(row: InstanceType) -> None:
    assert row.gpu in catalogue().gpus
    assert row.provider in PROVIDERS
    assert 1 <= row.gpus <= 16
    assert row.cpus >= row.gpus
    assert row.memory_gib >= 8 * row.gpus
    assert row.network_gbps is None or 1 <= row.network_gbps <= 10_000
    assert row.local_nvme_gb >= 0
    assert row.efa_interfaces >= 0
    assert row.markets
    assert set(row.markets) <= MARKETS
    assert len(set(row.markets)) == len(row.markets)
    assert set(row.price_provenance) == set(row.usd_per_hour)


def test_rdma_on_aws_needs_an_elastic_fabric_adapter_and_no_other_cloud_has_one() -> None:
    for row in TYPES:
        if row.provider == "aws":
            assert row.efa_interfaces or not row.rdma, row.id
        else:
            assert row.efa_interfaces == 0, row.id


@pytest.mark.parametrize("row", [row for row in TYPES if row.usd_per_hour], ids=lambda row: row.id)
def test_a_price_of_a_gpu_hour_is_plausible(row: InstanceType) -> None:
    for region in row.usd_per_hour:
        usd = row.usd_per_gpu_hour(region)
        assert usd is not None
        assert Decimal("0.3") < usd < 25, (region, usd)


def test_a_region_without_a_price_is_not_guessed() -> None:
    assert catalogue().instance_types["p5.48xlarge"].usd_per_gpu_hour("mars-north-1") is None
    assert catalogue().instance_types["p5e.48xlarge"].usd_per_hour == {}


def test_every_row_says_where_it_comes_from_and_no_date_lies_ahead() -> None:
    known = catalogue()
    prices = [price for row in TYPES for price in row.price_provenance.values()]
    geometries = [gpu.mig for gpu in GPUS if gpu.mig]
    groups: tuple[Sequence[Accelerator | GpuModel | InstanceType | MigGeometry | Provenance], ...] = (
        GPUS,
        TYPES,
        geometries,
        list(known.accelerators.values()),
        prices,
        list(known.tables.values()),
    )
    named = [(row.source, row.as_of) for group in groups for row in group]
    for source, as_of in named:
        assert len(source) > 10, source
        assert date(2025, 1, 1) < as_of <= date.today(), source
    assert set(known.tables) == {"gpus", "mig", "accelerators", *PROVIDERS}
    assert known.prices_as_of == min(price.as_of for price in prices)


def test_a_row_or_a_price_with_a_source_of_its_own_keeps_it() -> None:
    row = catalogue().instance_types["g7.2xlarge"]
    table = catalogue().tables["aws"]
    assert row.source != table.source
    assert row.as_of == table.as_of
    assert row.price_provenance["us-east-1"].as_of == date(2026, 7, 20)
    assert catalogue().instance_types["g6.xlarge"].price_provenance["us-east-1"].as_of == date(2026, 7, 6)


def test_short_gpu_names_are_distinct_and_fit_into_kubernetes_names() -> None:
    names = [gpu.name for gpu in GPUS]
    assert len(set(names)) == len(names)
    assert all(gpu.name not in catalogue().gpus or gpu.name == gpu.id for gpu in GPUS)
    for name in names:
        assert re.fullmatch(r"[a-z0-9][-a-z0-9]{0,61}[a-z0-9]", f"{name}-aws-capacity-block")


def test_names_that_fleets_already_use_stay() -> None:
    kept = {
        "a100-sxm-40gb": "a100-40gb",
        "a100-sxm-80gb": "a100",
        "h100-sxm-80gb": "h100",
        "h200-sxm-141gb": "h200",
        "l4-24gb": "l4",
    }
    assert {key: catalogue().gpus[key].name for key in kept} == kept


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.id)
def test_a_gpu_model_is_whole_and_its_id_ends_with_its_memory(gpu: GpuModel) -> None:
    assert gpu.id.endswith(f"-{gpu.memory_gib}gb")
    assert gpu.vendor == "nvidia"
    assert gpu.sms is None or 20 <= gpu.sms <= 200
    assert 0.05 <= gpu.relative_speed <= 3
    assert hash(gpu) == hash(gpu)


def test_h100_sxm_is_the_measure_of_speed() -> None:
    assert catalogue().gpus["h100-sxm-80gb"].relative_speed == 1
    assert catalogue().gpus["a100-sxm-80gb"].relative_speed == pytest.approx(0.315, abs=0.001)


WITH_MIG = [gpu for gpu in GPUS if gpu.mig]


@pytest.mark.parametrize("gpu", WITH_MIG, ids=lambda gpu: gpu.id)
def test_mig_profiles_stay_on_the_line_and_have_no_more_than_the_gpu(gpu: GpuModel) -> None:
    assert gpu.mig is not None
    numbers = [profile.number for profile in gpu.mig.profiles.values()]
    assert len(set(numbers)) == len(numbers)
    for name, profile in gpu.mig.profiles.items():
        assert name == profile.name
        assert all(0 <= start <= gpu.mig.units - profile.size for start in profile.starts)
        assert list(profile.starts) == sorted(set(profile.starts)) == sorted(profile.driver_starts)
        assert 1 <= profile.max_count <= len(profile.starts)
        assert profile.sms is None or gpu.sms is None or profile.sms <= gpu.sms
        assert profile.engines.within(gpu.mig.engines)
        assert profile.memory_mib is None or profile.memory_mib <= 1024 * gpu.memory_gib * profile.size / gpu.mig.units
        assert (
            profile.memory_mib is None
            or profile.memory_mib >= 0.91 * 1024 * gpu.memory_gib * profile.size / gpu.mig.units
        )
        assert NAME.fullmatch(name)


NAME = re.compile(r"[1-7]g\.[0-9]{1,3}gb(\+me|\+me\.all|-me|\+gfx)?")

MIG_PARTED = {  # names in the default configuration of mig-parted v0.15.0 and in the MIG user guide
    "a30-24gb": "1g.6gb 2g.12gb 4g.24gb",
    "a100-sxm-40gb": "1g.5gb 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb",
    "a100-pcie-80gb": "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb",
    "h100-sxm-80gb": "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb",
    "h100-nvl-94gb": "1g.12gb 1g.24gb 2g.24gb 3g.47gb 4g.47gb 7g.94gb",
    "h100-96gb": "1g.12gb 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb",
    "h20-96gb": "1g.12gb 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb",
    "gh200-96gb": "1g.12gb 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb",
    "gh200-144gb": "1g.18gb 1g.36gb 2g.36gb 3g.72gb 4g.72gb 7g.144gb",
    "h200-sxm-141gb": "1g.18gb 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb",
    "h200-nvl-141gb": "1g.18gb 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb",
    "b200-sxm-180gb": "1g.23gb 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb",
    "gb200-186gb": "1g.23gb 1g.47gb 2g.47gb 3g.93gb 4g.93gb 7g.186gb",
    "b300-sxm-269gb": "1g.34gb 1g.67gb 2g.67gb 3g.135gb 4g.135gb 7g.269gb",
    "gb300-278gb": "1g.35gb 1g.70gb 2g.70gb 3g.139gb 4g.139gb 7g.278gb",
    "rtx-pro-4500-32gb": "1g.16gb 2g.32gb",
    "rtx-pro-5000-48gb": "1g.24gb 2g.48gb",
    "rtx-pro-6000-96gb": "1g.24gb 2g.48gb 4g.96gb",
}


@pytest.mark.parametrize(("model", "names"), MIG_PARTED.items(), ids=MIG_PARTED)
def test_profiles_are_named_by_the_rule_as_nvidia_s_tools_name_them(model: str, names: str) -> None:
    mig = catalogue().gpus[model].mig
    assert mig is not None
    assert [name for name, profile in mig.profiles.items() if not profile.suffix] == names.split()


def test_a_card_that_reports_other_memory_has_other_names() -> None:
    assert profile_name(1, 2, 8, 186) == "1g.47gb"
    assert [profile_name(slices, size, 8, 189) for slices, size in ((1, 1), (3, 4), (4, 4), (7, 8))] == [
        "1g.24gb",
        "3g.95gb",
        "4g.95gb",
        "7g.189gb",
    ]


def test_pci_ids_tell_models_apart() -> None:
    ids = [device for gpu in GPUS for device in gpu.pci_device_ids]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch("[0-9A-F]{4}", device) for device in ids)


def test_what_models_can_do_is_known() -> None:
    known = catalogue().gpus
    for gpu in GPUS:
        assert gpu.kernel_modules
        assert (7, 0) <= gpu.compute_capability <= (12, 0)
        assert gpu.minimum_driver is None or re.fullmatch(r"[0-9]{3}\.[0-9]{2,3}(\.[0-9]{2})?", gpu.minimum_driver)
        assert gpu.mig is None or gpu.mig.mode_change == ("reset" if gpu.architecture == "ampere" else "live")
    assert known["b200-sxm-180gb"].kernel_modules == ("open",)
    assert known["gh200-96gb"].kernel_modules == ("open",)
    assert known["v100-sxm-32gb"].kernel_modules == ("proprietary",)
    assert (known["v100-sxm-32gb"].mps_clients, known["t4-16gb"].mps_clients) == (16, 48)
    assert [gpu.id for gpu in GPUS if gpu.multi_node_nvlink] == ["gb200-186gb", "gb300-278gb"]
    assert known["b200-sxm-180gb"].minimum_driver == "570.133.20"


@pytest.mark.parametrize(
    ("requests", "family"),
    [
        (["cpu", "nvidia.com/gpu"], "nvidia"),
        (["nvidia.com/mig-1g.24gb.me.all"], "nvidia"),
        (["nvidia.com/mig-1g.24gb-me", "nvidia.com/gpu.shared"], "nvidia"),
        (["amd.com/gpu"], "amd"),
        (["amd.com/cpx_nps4", "memory"], "amd"),
        (["habana.ai/gaudi"], "intel-gaudi"),
        (["aws.amazon.com/neuroncore"], "aws-neuron"),
        (["google.com/tpu"], "google-tpu"),
        (["cpu", "memory", "vpc.amazonaws.com/efa", "amd.com/cpx"], None),
        ([], None),
    ],
)
def test_a_pod_s_requests_say_which_accelerator_it_needs(requests: list[str], family: str | None) -> None:
    found = accelerator_of(requests, catalogue().accelerators)
    assert (found and found.id) == family


def test_a_pod_cannot_need_accelerators_of_two_makers() -> None:
    with pytest.raises(ValueError, match=r"amd.com/gpu \(AMD Instinct\), google.com/tpu"):
        accelerator_of(["amd.com/gpu", "google.com/tpu"], catalogue().accelerators)


def test_modes_of_a_partitioned_card_are_data() -> None:
    modes = catalogue().accelerators["amd"].modes
    assert modes is not None
    assert modes.compute["cpx"] == 8
    assert set(modes.only_with) <= set(modes.memory)
    assert all(set(compute) <= set(modes.compute) for compute in modes.only_with.values())


def test_which_models_have_mig() -> None:
    without = {gpu.name for gpu in GPUS if gpu.mig is None}
    assert without == {"v100", "t4", "a10", "a10g", "a40", "rtx-a6000", "l4", "l40", "l40s", "rtx-4090"}


def test_every_geometry_belongs_to_a_gpu_of_the_catalogue() -> None:
    document = read_table("mig")
    assert set(document["types"]) <= set(catalogue().gpus)
    assert {row["family"] for row in document["types"].values()} == set(document["families"])


def test_aws_rows_equal_the_data_they_were_made_from() -> None:
    known: dict[str, Any] = json.loads(data("aws-gpu-instance-types", "instance_types.json").read_text())
    prices = {row["instance_type"]: row["usd_per_hour"] for row in rows(data("aws-gpu-ondemand", "ondemand.csv"))}
    whole = {name for name, row in known.items() if "nvidia.com/gpu" in row["resources"]}
    ours = {row.id: row for row in TYPES if row.provider == "aws"}

    assert {name for name in whole if not name.startswith("g5g.")} == {n for n in ours if not n.startswith("g7.")}
    for name in whole & set(ours):
        label = {key.rpartition("/")[2]: value for key, value in known[name]["labels"].items()}
        row = ours[name]
        assert row.cpus == int(label["instance-cpu"]), name
        assert row.memory_gib == int(label["instance-memory"]) / 1024, name
        assert row.gpus == int(label["instance-gpu-count"]) == int(known[name]["resources"]["nvidia.com/gpu"]), name
        assert row.network_gbps == int(label["instance-network-bandwidth"]) / 1000, name
        assert row.local_nvme_gb == int(label.get("instance-local-nvme", 0)), name
        assert row.efa_interfaces == int(known[name]["resources"].get("vpc.amazonaws.com/efa", 0)), name
        assert row.usd_per_hour == ({"us-east-1": Decimal(prices[name])} if name in prices else {}), name


def test_gcp_prices_are_the_last_of_the_history() -> None:
    last: dict[tuple[str, str], str] = {}
    for snapshot in rows(data("gcp-gpu-price-history", "americas.csv.gz")):
        last[snapshot["machine_type"], snapshot["region"]] = snapshot["usd_hour_ondemand"]
    ours = {row.id: row for row in TYPES if row.provider == "gcp"}

    for name, row in ours.items():
        expected = {region: Decimal(usd) for (kind, region), usd in last.items() if kind == name and usd}
        assert row.usd_per_hour == expected, name
    assert {name for name, _ in last} - set(ours) == {f"g4-standard-{size}" for size in (6, 12, 24)}


def test_gcp_types_that_are_not_sold_on_demand_say_so() -> None:
    known = catalogue().instance_types
    for size in (1, 2, 4):
        assert known[f"a3-highgpu-{size}g"].markets == ("spot", "flex-start")
    assert known["a4x-highgpu-4g"].markets == ("reserved",)
    assert "on-demand" in known["a3-highgpu-8g"].markets
