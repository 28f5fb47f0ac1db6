from __future__ import annotations

import pytest

from infra.discovery.gpus import model_of_flavor, recognise

PRODUCT = "nvidia.com/gpu.product"


@pytest.mark.parametrize(
    ("product", "model"),
    [
        ("NVIDIA-H100-80GB-HBM3", "h100-sxm-80gb"),
        ("NVIDIA-H100-80GB-HBM3-SHARED", "h100-sxm-80gb"),
        ("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", "h100-sxm-80gb"),
        ("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb-SHARED", "h100-sxm-80gb"),
        ("NVIDIA-H100-80GB-HBM3-MIG-INVALID", "h100-sxm-80gb"),
        ("NVIDIA-H100-PCIe", "h100-pcie-80gb"),
        ("NVIDIA-H100-NVL", "h100-nvl-94gb"),
        ("NVIDIA-H200", "h200-sxm-141gb"),
        ("NVIDIA-A100-SXM4-40GB", "a100-sxm-40gb"),
        ("A100-SXM4-80GB", "a100-sxm-80gb"),
        ("NVIDIA-A100-80GB-PCIe", "a100-pcie-80gb"),
        ("NVIDIA-A100-PCIE-40GB", "a100-pcie-40gb"),
        ("NVIDIA-A10G", "a10g-24gb"),
        ("NVIDIA-A30", "a30-24gb"),
        ("NVIDIA-L4", "l4-24gb"),
        ("NVIDIA-L40S", "l40s-48gb"),
        ("Tesla-T4", "t4-16gb"),
        ("Tesla-V100-SXM2-32GB", "v100-sxm-32gb"),
        ("NVIDIA-B200", "b200-sxm-180gb"),
        ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", "rtx-pro-6000-96gb"),
    ],
)
def test_a_product_name_of_feature_discovery_names_a_model(product: str, model: str) -> None:
    assert recognise({PRODUCT: product}) == (model, f"label {PRODUCT}={product}")


@pytest.mark.parametrize("product", ["", "NVIDIA-A100", "NVIDIA-GeForce-RTX-4090", "Tesla-K80", "NVIDIA-", "-SHARED"])
def test_what_is_no_model_of_the_catalogue_or_several_is_not_guessed(product: str) -> None:
    assert recognise({PRODUCT: product}).model is None


def test_a_model_with_another_memory_is_another_model() -> None:
    label = {PRODUCT: "Tesla-V100-SXM2-16GB", "nvidia.com/gpu.memory": "16384"}
    assert recognise(label).model is None


@pytest.mark.parametrize(
    ("labels", "model"),
    [
        ({"node.kubernetes.io/instance-type": "p4d.24xlarge"}, "a100-sxm-40gb"),
        ({"karpenter.k8s.aws/instance-gpu-name": "l4", "karpenter.k8s.aws/instance-gpu-memory": "22888"}, "l4-24gb"),
        (
            {"karpenter.k8s.aws/instance-gpu-name": "a100", "karpenter.k8s.aws/instance-gpu-memory": "81920"},
            "a100-sxm-80gb",
        ),
        ({"karpenter.k8s.aws/instance-gpu-name": "a100"}, None),
        ({"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"}, "t4-16gb"),
        ({"cloud.google.com/gke-accelerator": "nvidia-l4"}, "l4-24gb"),
        ({"cloud.google.com/gke-accelerator": "nvidia-tesla-a100"}, "a100-sxm-40gb"),
        ({"cloud.google.com/gke-accelerator": "nvidia-h100-mega-80gb"}, "h100-sxm-80gb"),
        ({"gpufleet.dev/flavor": "h100-aws-spot"}, "h100-sxm-80gb"),
        ({}, None),
    ],
)
def test_clouds_and_our_own_labels_name_models_too(labels: dict[str, str], model: str | None) -> None:
    assert recognise(labels).model == model


def test_the_hardware_is_believed_before_a_label_of_ours() -> None:
    assert recognise({"gpufleet.dev/flavor": "h100-onprem", PRODUCT: "NVIDIA-L4"}).model == "l4-24gb"


@pytest.mark.parametrize(
    ("flavor", "model"),
    [
        ("a100-40gb-mig-onprem", "a100-sxm-40gb"),
        ("a100-onprem", "a100-sxm-80gb"),
        ("a100-pcie-40gb-onprem", "a100-pcie-40gb"),
        ("b200", None),
        ("x-onprem", None),
    ],
)
def test_a_flavor_names_the_longest_short_name_that_it_begins_with(flavor: str, model: str | None) -> None:
    assert model_of_flavor(flavor) == model
