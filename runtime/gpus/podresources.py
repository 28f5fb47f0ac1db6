"""Which pod has which GPU, asked of the kubelet over its socket (API `v1.PodResourcesLister`).

The kubelet speaks gRPC: `grpcio` is imported when it is asked first, and messages are read here, because no Python
package of them is published and four of their fields are needed. Claims of dynamic resource allocation are not read:
their devices have names of the driver's own, which no UUID follows from.

Invariants: hostile or truncated messages are a PodsUnknown, never half an answer; nothing is written to the kubelet.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from runtime.gpus.reader import Gpu

SOCKET: Final = "/var/lib/kubelet/pod-resources/kubelet.sock"
"""The kubelet's own place; only root may open it."""

TIMEOUT_SECONDS: Final = 5.0
LONGEST_ANSWER: Final = 16 * 2**20
"""Bytes; what the kubelet allows for it (podresources/constants.go)."""

_METHOD: Final = "/v1.PodResourcesLister/List"
_SHARED: Final = "::"  # before the number of a replica, with time-slicing and MPS
_GKE: Final = re.compile(r"nvidia([0-9]{1,4})(?:/gi([0-9]{1,4}))?(?:/vgpu[0-9]{1,4})?")

# Numbers of fields: kubelet/pkg/apis/podresources/v1/api.proto.
_POD_RESOURCES: Final = 1
_POD_NAME, _POD_NAMESPACE, _POD_CONTAINERS = 1, 2, 3
_CONTAINER_NAME, _CONTAINER_DEVICES = 1, 2
_DEVICES_RESOURCE, _DEVICES_IDS = 1, 2


class PodsUnknown(Exception):
    """The kubelet did not say who has what; the text says why."""


@dataclass(frozen=True, slots=True)
class Holding:
    """One device of one container."""

    namespace: str
    pod: str
    container: str
    resource: str
    """E.g. `nvidia.com/gpu`, `nvidia.com/mig-1g.10gb`."""
    device_id: str
    """As the device plugin calls it."""


class PodResources:
    """The kubelet of this node; for one thread."""

    def __init__(self, socket: str = SOCKET) -> None:
        self._socket = socket
        self._list: Any = None

    def holdings(self) -> tuple[Holding, ...]:
        """Every device of every container on the node, of all kinds.

        Raises:
            PodsUnknown: when the kubelet does not say.
        """
        try:
            grpc: Any = importlib.import_module("grpc")
        except ImportError as error:
            raise PodsUnknown(f"{error}; install grpcio") from error
        if self._list is None:
            options = [("grpc.max_receive_message_length", LONGEST_ANSWER), ("grpc.enable_http_proxy", 0)]
            self._list = grpc.insecure_channel(f"unix://{self._socket}", options=options).unary_unary(_METHOD)
        try:
            answer = self._list(b"", timeout=TIMEOUT_SECONDS)
        except grpc.RpcError as error:
            raise PodsUnknown(f"{self._socket}: {error.code().name}: {error.details()}") from error
        try:
            return tuple(holdings_of(answer))
        except ValueError as error:
            raise PodsUnknown(f"{self._socket}: {error}") from error


def holders(holdings: Sequence[Holding], gpus: Sequence[Gpu]) -> Mapping[str, tuple[Holding, ...]]:
    """Who has each GPU or MIG device, by its UUID; several where it is shared."""
    by_index: dict[tuple[int, int | None], str] = {(gpu.index, None): gpu.uuid for gpu in gpus}
    for gpu in gpus:
        by_index |= {(gpu.index, instance.gpu_instance): instance.uuid for instance in gpu.instances}
    known = set(by_index.values())
    found: dict[str, list[Holding]] = {}
    for holding in holdings:
        uuid = holding.device_id.partition(_SHARED)[0]
        if match := _GKE.fullmatch(uuid):
            uuid = by_index.get((int(match[1]), int(match[2]) if match[2] else None), "")
        if uuid in known and holding not in found.setdefault(uuid, []):
            found[uuid].append(holding)
    return {uuid: tuple(several) for uuid, several in found.items()}


def holdings_of(message: bytes) -> Iterator[Holding]:
    """Read a ListPodResourcesResponse.

    Raises:
        ValueError: when it is none.
    """
    for pod in _all(message, _POD_RESOURCES):
        name, namespace = _text(pod, _POD_NAME), _text(pod, _POD_NAMESPACE)
        for container in _all(pod, _POD_CONTAINERS):
            of = _text(container, _CONTAINER_NAME)
            for devices in _all(container, _CONTAINER_DEVICES):
                resource = _text(devices, _DEVICES_RESOURCE)
                for device in _all(devices, _DEVICES_IDS):
                    yield Holding(namespace, name, of, resource, device.decode())


def _text(message: bytes, number: int) -> str:
    return next((value.decode() for value in _all(message, number)), "")


def _all(message: bytes, number: int) -> Iterator[bytes]:
    """Every value with a length of one field, by the encoding of protobuf; other fields are passed over."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            _, at = _varint(message, at)
            continue
        if kind == 2:
            size, at = _varint(message, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"field of unknown kind {kind} at byte {at}")
        if at + size > len(message):
            raise ValueError(f"field of {size} bytes at byte {at} of {len(message)}")
        if kind == 2 and key >> 3 == number:
            yield message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(message):
            raise ValueError("it ends within a number")
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError(f"number of more than ten bytes before byte {at}")
