"""The files a local pod sees: volumes, and the directory of its service account.

Invariants: files of a ConfigMap change all at once, as a kubelet changes them (a symbolic link is swapped), so a reader
never sees half an update; a claim's directory outlives its pods, an emptyDir does not.
"""

from __future__ import annotations

import base64
import datetime
import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path

from infra.files import write_atomically
from infra.local.errors import PodSpecError
from infra.local.kubeclient import KubeClient
from infra.local.podspec import PodPlan, Volume
from infra.local.state import State

SERVICE_ACCOUNT_VARIABLE = "GPUFLEET_SERVICE_ACCOUNT_DIR"
_DATA_LINK = "..data"
_TOKEN_SECONDS = 3600
_REFRESH_AT = 0.8  # of the token's lifetime, as the kubelet does


def pod_directory(state: State, plan: PodPlan) -> Path:
    """Return the directory that belongs to one pod, deleted with it."""
    return state.root / "pods" / plan.namespace / plan.name


def prepare(state: State, client: KubeClient, plan: PodPlan) -> dict[str, str]:
    """Create the pod's volumes and return their directories by volume name.

    Raises:
        PodSpecError: a ConfigMap is missing, or lacks a key.
    """
    directories: dict[str, str] = {}
    for volume in plan.volumes:
        if volume.claim:
            directory = state.root / "volumes" / plan.namespace / volume.claim
        else:
            directory = pod_directory(state, plan) / "volumes" / volume.name
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        directories[volume.name] = str(directory)
    refresh(state, client, plan)
    return directories


def refresh(state: State, client: KubeClient, plan: PodPlan) -> None:
    """Bring the files of all ConfigMap volumes up to date."""
    for volume in plan.volumes:
        if volume.config_map:
            found = client.find("v1", "ConfigMap", volume.config_map, plan.namespace)
            if found is None and not volume.optional:
                raise PodSpecError(f"spec.volumes[{volume.name}]: no ConfigMap {plan.namespace}/{volume.config_map}")
            directory = pod_directory(state, plan) / "volumes" / volume.name
            write_projection(directory, _files(volume, found or {}))


def _files(volume: Volume, config_map: Mapping[str, Mapping[str, str]]) -> dict[str, bytes]:
    content = {key: value.encode() for key, value in (config_map.get("data") or {}).items()}
    content |= {key: base64.b64decode(value) for key, value in (config_map.get("binaryData") or {}).items()}
    if not volume.items:
        return content
    missing = [key for key, _ in volume.items if key not in content]
    if missing and not volume.optional:
        raise PodSpecError(f"spec.volumes[{volume.name}]: ConfigMap {volume.config_map} has no key {missing[0]!r}")
    return {path: content[key] for key, path in volume.items if key in content}


def write_projection(directory: Path, files: Mapping[str, bytes]) -> bool:
    """Make `directory` show exactly `files`, by one atomic swap; return whether anything changed."""
    link = directory / _DATA_LINK
    current = {str(p.relative_to(link)): p.read_bytes() for p in sorted(link.rglob("*")) if p.is_file()}
    if link.is_symlink() and current == dict(files):
        return False
    directory.mkdir(parents=True, exist_ok=True)
    version = directory / f"..{uuid.uuid4().hex}"
    for name, content in files.items():
        target = version / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    version.mkdir(exist_ok=True)
    new_link = directory / f"{_DATA_LINK}.new"
    new_link.unlink(missing_ok=True)
    new_link.symlink_to(version.name)
    os.replace(new_link, link)  # noqa: PTH105
    _link_entries(directory, {name.split("/", 1)[0] for name in files})
    for old in directory.glob("..*"):
        if old.is_dir() and not old.is_symlink() and old != version:
            shutil.rmtree(old)
    return True


def _link_entries(directory: Path, names: set[str]) -> None:
    for entry in directory.iterdir():
        if not entry.name.startswith("..") and entry.name not in names:
            entry.unlink()
    for name in names:
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(Path(_DATA_LINK, name))


class ServiceAccountFiles:
    """The directory a pod finds at the standard in-cluster place: token, namespace and ca.crt.

    The token is what the API server gives for exactly this service account, nothing more, and is renewed before it
    expires.
    """

    def __init__(self, state: State, client: KubeClient, plan: PodPlan) -> None:
        self._client = client
        self._plan = plan
        self._authority = state.pki / "ca.crt"
        self.directory = pod_directory(state, plan) / "serviceaccount"
        self._refresh_at = datetime.datetime.min.replace(tzinfo=datetime.UTC)

    def refresh(self, now: datetime.datetime) -> None:
        """Write the files, or a new token where the old one nears its end.

        Raises:
            KubeError: the service account does not exist, or the API server cannot be reached.
        """
        if now < self._refresh_at:
            return
        path = self._client.path("v1", "ServiceAccount", self._plan.service_account, self._plan.namespace)
        answer = self._client.request(
            "POST",
            f"{path}/token",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": _TOKEN_SECONDS},
            },
        )
        expires = datetime.datetime.fromisoformat(answer["status"]["expirationTimestamp"])
        write_atomically(self.directory / "token", answer["status"]["token"])
        write_atomically(self.directory / "namespace", self._plan.namespace)
        write_atomically(self.directory / "ca.crt", self._authority.read_bytes())
        self._refresh_at = now + (expires - now) * _REFRESH_AT
