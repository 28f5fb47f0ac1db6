"""What one process of the agent is started with: arguments, environment, and the fleet's part of the file.

It does not read the fleet file; the components wrote what the agent needs into a ConfigMap (see stacks.agent_config).
"""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path, PurePath
from typing import Final

import yaml
from pydantic import ValidationError

from runtime.errors import SettingsError
from runtime.store import check_url
from stacks.agent_config import AgentConfig, ledger_url, parse
from stacks.labels import SYSTEM_NAMESPACE
from stacks.quantities import parse_duration

DEFAULT_CONFIG: Final = "/etc/gpufleet/config.yaml"
DEFAULT_HEALTH_PORT: Final = 8080
LOCAL_PORT_VARIABLE: Final = "GPUFLEET_PORT_HEALTH"
"""Set by the embedded pod runner, where many share one machine: the port to use instead, on loopback alone."""

BIND_VARIABLE: Final = "GPUFLEET_BIND"
LOOPBACK: Final = "127.0.0.1"
EVERYWHERE: Final = ""
"""In a pod: the kubelet and Prometheus ask from outside, by IPv4 or IPv6."""

DEFAULT_LEASE: Final = "4s"
"""A dead leader is followed within 5 s; runtime.lease says what that costs."""

CONFIG_KEY: Final = PurePath(DEFAULT_CONFIG).name
"""The file's name is its key in the ConfigMap."""

_MOST_REASONS: Final = 10
_LONGEST_MESSAGE: Final = 1_000
"""Enough to mend a file by; the rest of a megabyte of garbage says nothing more."""

SHORTEST_LEASE: Final = timedelta(seconds=1)
"""Leases hold whole seconds."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a process is told; `identity` names it among its replicas and survives a restart of its container."""

    config: AgentConfig
    ledger: str
    namespace: str
    identity: str
    health_port: int
    bind: str
    lease_seconds: int
    log_level: str


def load(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> Settings:
    """Read the arguments, the environment and the configuration file.

    Raises:
        SettingsError: in one message, when any of them cannot be used.
    """
    options = _parser().parse_args(arguments)
    config = _config(Path(options.config))
    return Settings(
        config=config,
        ledger=check_url(options.ledger or ledger_url(config.ledger)),
        namespace=environment.get("POD_NAMESPACE", SYSTEM_NAMESPACE),
        identity=environment.get("POD_NAME") or socket.gethostname(),
        health_port=_port(environment.get(LOCAL_PORT_VARIABLE) or options.health_port),
        bind=environment.get(BIND_VARIABLE, LOOPBACK if LOCAL_PORT_VARIABLE in environment else EVERYWHERE),
        lease_seconds=_lease_seconds(options.lease_duration),
        log_level=options.log_level,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m runtime", description="The gpufleet agent.")
    parser.add_argument("--config", default=DEFAULT_CONFIG, help="configuration file (default: %(default)s)")
    parser.add_argument("--ledger", help="URL of the ledger: file://, s3://, gs://, az:// (default: as configured)")
    parser.add_argument(
        "--health-port",
        default=str(DEFAULT_HEALTH_PORT),
        help=f"port of /healthz, /readyz and /metrics; 0 picks a free one; {LOCAL_PORT_VARIABLE} wins over it",
    )
    parser.add_argument(
        "--lease-duration",
        default=DEFAULT_LEASE,
        help="how long a dead leader blocks the next one, in whole seconds (default: %(default)s)",
    )
    parser.add_argument("--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"])
    return parser


def read_config(text: str, source: str) -> AgentConfig:
    """Read the text that the components wrote; `source` names where it was found.

    Raises:
        SettingsError: in one line, when it is not a configuration of this version.
    """
    try:
        return parse(text)
    except yaml.YAMLError as error:
        raise SettingsError(_shortened(f"{source}: is not YAML: {' '.join(str(error).split())}")) from error
    except ValidationError as error:
        reasons = "; ".join(
            f"{'.'.join(map(str, detail['loc'])) or 'the whole file'}: {detail['msg']}"
            for detail in error.errors()[:_MOST_REASONS]
        )
        raise SettingsError(
            f"{source}: not a configuration of this version of the agent: {_shortened(reasons)}. "
            "Deploy the agent and its ConfigMap from the same checkout"
        ) from error
    except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
        # What PyYAML makes of dates that do not exist, of numbers without end, and of a thousand brackets.
        raise SettingsError(
            f"{source}: is not YAML that can be read: {type(error).__name__}: {_shortened(str(error))}"
        ) from error


def _config(path: Path) -> AgentConfig:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: cannot be read: {error}") from error
    return read_config(text, str(path))


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]} …"


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65_535:
        raise SettingsError(f"health port {text!r}: must be a number from 0 to 65535")
    return int(text)


def _lease_seconds(text: str) -> int:
    try:
        duration = parse_duration(text)
    except ValueError as error:
        raise SettingsError(f"lease duration {text!r}: {error}") from error
    if duration < SHORTEST_LEASE or duration % SHORTEST_LEASE:
        raise SettingsError(f"lease duration {text!r}: must be whole seconds, at least 1s")
    return int(duration.total_seconds())
