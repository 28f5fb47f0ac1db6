"""Turn a Deployment's pod template into what one local process needs: pure translation, nothing is started or written.

It covers what our agent's template uses, and refuses the rest by name instead of ignoring it: a probe or a secret that
is silently missing would make the local run mean something else than the cluster.

The stand-in for a mount namespace: a process cannot have its own /etc here, so each volume is a local directory and
every occurrence of a mount path as a path prefix, in arguments and in values of environment variables, is rewritten to
that directory. A path that the program itself has hard-coded is not.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infra.local.errors import PodSpecError
from infra.local.kubeclient import Manifest

NODE_NAME = "gpufleet-local"
PORT_VARIABLE_PREFIX = "GPUFLEET_PORT_"
_DEFAULT_GRACE_SECONDS = 30  # Kubernetes' default of terminationGracePeriodSeconds
_REFERENCE = re.compile(r"\$(?:\$|\(([A-Za-z_][A-Za-z0-9_.-]*)\))")


@dataclass(frozen=True)
class Volume:
    """A volume of the pod; `claim` or `config_map` is set for those kinds, neither for an emptyDir."""

    name: str
    config_map: str | None = None
    items: tuple[tuple[str, str], ...] = ()  # (key, file name); empty means all keys under their own names
    optional: bool = False
    claim: str | None = None


@dataclass(frozen=True)
class Mount:
    """Where a volume is seen by the container."""

    path: str
    volume: str
    sub_path: str = ""


@dataclass(frozen=True)
class ReadinessProbe:
    """An HTTP probe; `port` is the name of a container port."""

    path: str
    port: str
    period_seconds: float
    timeout_seconds: float
    failure_threshold: int


@dataclass(frozen=True)
class PodPlan:
    """One replica, before ports and directories are chosen."""

    name: str
    namespace: str
    digest: str
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    volumes: tuple[Volume, ...]
    mounts: tuple[Mount, ...]
    ports: tuple[tuple[str, int], ...]
    probe: ReadinessProbe | None
    service_account: str | None
    grace_seconds: float

    def localized(
        self, directories: Mapping[str, str], ports: Mapping[str, int], python: str
    ) -> tuple[list[str], dict[str, str]]:
        """Return command and environment with local directories (by volume name) and local ports (by port name)."""
        paths = {mount.path: _join(directories[mount.volume], mount.sub_path) for mount in self.mounts}
        rewrite = path_rewriter(paths)
        variables: dict[str, str] = {}
        for name, value in self.environment:
            variables[name] = rewrite(_expand(value, variables))
        command = [rewrite(_expand(part, variables)) for part in self.command]
        if command[0] in ("python", "python3"):
            command[0] = python
        return command, {**variables, **{port_variable(name): str(port) for name, port in ports.items()}}


def port_variable(name: str) -> str:
    """Return the environment variable that tells a process the local port to bind instead of the declared one."""
    return PORT_VARIABLE_PREFIX + name.upper().replace("-", "_")


def plan(deployment: Manifest, index: int) -> PodPlan:
    """Return the plan of replica `index`.

    Raises:
        PodSpecError: the template uses what the local runner cannot do; the message names the field.
    """
    metadata, template = deployment["metadata"], deployment["spec"]["template"]
    spec = template["spec"]
    digest = template_digest(deployment)
    name, namespace = f"{metadata['name']}-{digest}-{index}", metadata.get("namespace", "default")
    containers = spec["containers"]
    if len(containers) != 1 or spec.get("initContainers"):
        raise PodSpecError(
            f"spec.containers: {len(containers)} containers and {len(spec.get('initContainers', []))} init containers; "
            "the local pod runner runs exactly one container and no init container"
        )
    container = containers[0]
    command = (*container.get("command", ()), *container.get("args", ()))
    if not container.get("command"):
        raise PodSpecError("spec.containers[0].command: missing; without an image the local pod runner needs a command")
    if container.get("envFrom"):
        raise PodSpecError("spec.containers[0].envFrom: not supported by the local pod runner; list variables in env")
    ports = tuple((port["name"], int(port["containerPort"])) for port in container.get("ports", ()) if port.get("name"))
    fields = {"metadata.name": name, "metadata.namespace": namespace, "spec.nodeName": NODE_NAME}
    mounts = container.get("volumeMounts", ())
    automount = spec.get("automountServiceAccountToken", True)
    return PodPlan(
        name=name,
        namespace=namespace,
        digest=digest,
        command=command,
        environment=tuple((item["name"], _value(item, fields)) for item in container.get("env", ())),
        volumes=tuple(_volume(volume) for volume in spec.get("volumes", ())),
        mounts=tuple(Mount(m["mountPath"].rstrip("/"), m["name"], m.get("subPath", "")) for m in mounts),
        ports=ports,
        probe=_probe(container.get("readinessProbe"), ports),
        service_account=spec.get("serviceAccountName", "default") if automount else None,
        grace_seconds=float(spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE_SECONDS)),
    )


def template_digest(deployment: Manifest) -> str:
    """Return a short digest of the pod template: replicas with another one are outdated."""
    text = json.dumps(deployment["spec"]["template"], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def path_rewriter(paths: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function that replaces each key of `paths`, where it stands as a path or a path's beginning.

    A path begins at the start of the text, after "://", or after a character that no path contains: `--file=/etc/x/y`
    and `file:///etc/x` are rewritten, `/srv/etc/x` and `/etc/xy` are not. The longest mount path wins.
    """
    if not paths:
        return lambda text: text
    alternatives = "|".join(re.escape(path) for path in sorted(paths, key=len, reverse=True))
    pattern = re.compile(rf"(?:(?<=://)|(?<![\w./-]))(?:{alternatives})(?![\w.-])")
    return lambda text: pattern.sub(lambda match: paths[match.group()], text)


def _join(directory: str, sub_path: str) -> str:
    return f"{directory}/{sub_path}" if sub_path else directory


def _expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace $(NAME) as Kubernetes does: unknown names stay as they are, $$ is a literal dollar."""

    def replacement(match: re.Match[str]) -> str:
        if match.group(1) is None:
            return "$"
        return variables.get(match.group(1), match.group())

    return _REFERENCE.sub(replacement, text)


def _value(item: Mapping[str, Any], fields: Mapping[str, str]) -> str:
    source = item.get("valueFrom")
    if source is None:
        return str(item.get("value", ""))
    path = source.get("fieldRef", {}).get("fieldPath")
    if path not in fields:
        raise PodSpecError(
            f"spec.containers[0].env[{item['name']}].valueFrom: {path or sorted(source)} is not supported by the local "
            f"pod runner; allowed are fieldRef to {', '.join(sorted(fields))}"
        )
    return fields[path]


def _volume(volume: Mapping[str, Any]) -> Volume:
    name = volume["name"]
    if "configMap" in volume:
        source = volume["configMap"]
        items = tuple((item["key"], item["path"]) for item in source.get("items", ()))
        return Volume(name, config_map=source["name"], items=items, optional=bool(source.get("optional")))
    if "persistentVolumeClaim" in volume:
        return Volume(name, claim=volume["persistentVolumeClaim"]["claimName"])
    if "emptyDir" in volume:
        return Volume(name)
    kind = ", ".join(sorted(set(volume) - {"name"}))
    raise PodSpecError(
        f"spec.volumes[{name}]: {kind} is not supported by the local pod runner; "
        "allowed are configMap, persistentVolumeClaim and emptyDir"
    )


def _probe(probe: Mapping[str, Any] | None, ports: Sequence[tuple[str, int]]) -> ReadinessProbe | None:
    if probe is None:
        return None
    if "httpGet" not in probe:
        raise PodSpecError("spec.containers[0].readinessProbe: only httpGet is supported by the local pod runner")
    wanted = probe["httpGet"]["port"]
    name = next((name for name, number in ports if wanted in (name, number)), None)
    if name is None:
        raise PodSpecError(
            f"spec.containers[0].readinessProbe.httpGet.port: {wanted!r} is no named container port; "
            f"named ports are {', '.join(name for name, _ in ports) or 'none'}"
        )
    return ReadinessProbe(
        path=probe["httpGet"].get("path", "/"),
        port=name,
        period_seconds=float(probe.get("periodSeconds", 10)),
        timeout_seconds=float(probe.get("timeoutSeconds", 1)),
        failure_threshold=int(probe.get("failureThreshold", 3)),
    )
