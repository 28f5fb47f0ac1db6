"""Who has which GPU, asked of a kubelet that speaks real gRPC."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.gpus.podresources import Holding, PodResources, PodsUnknown, holders, holdings_of
from runtime.gpus.reader import Gpu, Instance

INSTANCE = Instance("MIG-1", 2, 3, 0, "1g.10gb", 16, 9984)
GPUS = (
    Gpu("GPU-a", 0, "H100", "", 0, 81559, (9, 0), 132, True, True, (INSTANCE,)),
    Gpu("GPU-b", 1, "H100", "", 0, 81559, (9, 0), 132, False, False),
)


def length_delimited(number: int, *values: bytes | str) -> bytes:
    found = b""
    for value in values:
        raw = value.encode() if isinstance(value, str) else value
        found += varint(number << 3 | 2) + varint(len(raw)) + raw
    return found


def varint(value: int) -> bytes:
    found = b""
    while value >= 0x80:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def devices(resource: str, *ids: str) -> bytes:
    topology = length_delimited(3, length_delimited(1, varint(1 << 3) + varint(1)))
    return length_delimited(2, length_delimited(1, resource) + length_delimited(2, *ids) + topology)


def pod(namespace: str, name: str, *of: bytes) -> bytes:
    cpus = varint(3 << 3) + varint(2**63)  # cpu_ids, which nobody asked for
    container = length_delimited(1, "main") + b"".join(of) + cpus
    return length_delimited(
        1, length_delimited(1, name) + length_delimited(2, namespace) + length_delimited(3, container)
    )


ANSWER = (
    pod("ml", "whole", devices("nvidia.com/gpu", "GPU-b"))
    + pod("ml", "slice", devices("nvidia.com/mig-1g.10gb", "MIG-1"), devices("rdma/hca", "mlx5_0"))
    + pod("kube-system", "dns")
)


@contextmanager
def kubelet(socket: Path, answer: bytes, code: grpc.StatusCode | None = None) -> Iterator[None]:
    def listed(request: bytes, context: Any) -> bytes:
        assert request == b""
        if code is not None:
            context.abort(code, "not now")
        return answer

    server = grpc.server(ThreadPoolExecutor(1))
    handler = grpc.unary_unary_rpc_method_handler(listed)
    service = grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": handler})
    server.add_generic_rpc_handlers((service,))
    server.add_insecure_port(f"unix://{socket}")
    server.start()
    try:
        yield
    finally:
        server.stop(None).wait()


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "kubelet.sock"


def test_the_kubelet_says_who_has_what(socket: Path) -> None:
    with kubelet(socket, ANSWER):
        found = PodResources(str(socket)).holdings()
    assert found == (
        Holding("ml", "whole", "main", "nvidia.com/gpu", "GPU-b"),
        Holding("ml", "slice", "main", "nvidia.com/mig-1g.10gb", "MIG-1"),
        Holding("ml", "slice", "main", "rdma/hca", "mlx5_0"),
    )
    assert {uuid: [each.pod for each in several] for uuid, several in holders(found, GPUS).items()} == {
        "GPU-b": ["whole"],
        "MIG-1": ["slice"],
    }


def test_an_answer_far_over_the_usual_limit_of_grpc_is_read(socket: Path) -> None:
    many = b"".join(pod("ml", f"pod-{at}", devices("nvidia.com/gpu", *["x" * 1000] * 50)) for at in range(100))
    with kubelet(socket, many):
        assert len(PodResources(str(socket)).holdings()) == 5_000


def test_a_kubelet_that_refuses_or_is_away_is_said_and_asked_again(socket: Path) -> None:
    resources = PodResources(str(socket))
    with (
        kubelet(socket, b"", grpc.StatusCode.PERMISSION_DENIED),
        pytest.raises(PodsUnknown, match="PERMISSION_DENIED: not now"),
    ):
        resources.holdings()
    with kubelet(socket, b"\x0a\xff"), pytest.raises(PodsUnknown):
        PodResources(str(socket)).holdings()
    with pytest.raises(PodsUnknown, match="UNAVAILABLE"):
        PodResources(str(socket.with_name("nobody"))).holdings()


def test_without_grpcio_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, socket: Path) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(PodsUnknown, match="install grpcio"):
        PodResources(str(socket)).holdings()


@pytest.mark.parametrize(
    ("device", "uuid"),
    [
        ("GPU-b", "GPU-b"),
        ("GPU-b::3", "GPU-b"),
        ("MIG-1::0", "MIG-1"),
        ("nvidia1", "GPU-b"),
        ("nvidia1/vgpu0", "GPU-b"),
        ("nvidia0/gi3", "MIG-1"),
        ("nvidia0/gi3/vgpu1", "MIG-1"),
        ("nvidia0/gi9", None),
        ("nvidia7", None),
        ("GPU-gone", None),
        ("", None),
        ("0", None),
    ],
)
def test_every_plugins_way_to_name_a_device_leads_to_its_uuid(device: str, uuid: str | None) -> None:
    holding = Holding("ml", "a", "main", "nvidia.com/gpu", device)
    assert holders([holding, holding], GPUS) == ({uuid: (holding,)} if uuid else {})


def test_a_shared_gpu_has_several_holders() -> None:
    several = [Holding("ml", name, "main", "nvidia.com/gpu.shared", f"GPU-b::{at}") for at, name in enumerate("ab")]
    assert [each.pod for each in holders(several, GPUS)["GPU-b"]] == ["a", "b"]


@given(st.binary(max_size=64))
def test_no_bytes_make_it_fail_otherwise_than_by_a_value_error(raw: bytes) -> None:
    for message in (raw, length_delimited(1, raw), ANSWER[: len(raw)] + raw):
        try:
            list(holdings_of(message))
        except ValueError:
            continue
