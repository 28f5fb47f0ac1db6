from __future__ import annotations

from pathlib import Path

import pytest

from runtime.errors import SettingsError
from runtime.settings import load
from stacks.agent_config import dump
from tests.builders import a_config


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(dump(a_config()))
    return path


def test_the_file_the_components_wrote_is_read_back(config_file: Path) -> None:
    settings = load(["--config", str(config_file)], {"POD_NAME": "pod-1", "POD_NAMESPACE": "ns"})
    assert settings.config == a_config()
    assert (settings.identity, settings.namespace, settings.ledger) == (
        "pod-1",
        "ns",
        "file:///var/lib/gpufleet/ledger",
    )
    assert (settings.bind, settings.health_port, settings.lease_seconds) == ("", 8080, 4)


def test_arguments_are_taken(config_file: Path) -> None:
    arguments = ["--config", str(config_file), "--ledger", "s3://b/l", "--health-port", "0", "--lease-duration", "3s"]
    settings = load(arguments, {"GPUFLEET_BIND": "::1"})
    assert (settings.ledger, settings.health_port, settings.bind) == ("s3://b/l", 0, "::1")
    assert settings.lease_seconds == 3


def test_the_port_of_a_local_pod_runner_wins_and_stays_on_loopback(config_file: Path) -> None:
    settings = load(["--config", str(config_file), "--health-port", "8080"], {"GPUFLEET_PORT_HEALTH": "9000"})
    assert (settings.health_port, settings.bind) == (9000, "127.0.0.1")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the whole file"),
        ("organization: [", "not YAML"),
        ("organization: acme", "gate: Field required"),
        ("!!python/object/apply:os.system ['true']", "not YAML"),
        ("\x00", "not YAML"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_clear_message(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=words) as caught:
        load(["--config", str(path)], {})
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_missing_or_binary_file_is_one_clear_message(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        load(["--config", str(tmp_path / "missing.yaml")], {})
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError, match="cannot be read"):
        load(["--config", str(tmp_path / "binary.yaml")], {})


@pytest.mark.parametrize("duration", ["0s", "500ms", "1.5s", "15", "soon"])
def test_a_lease_of_no_whole_seconds_is_refused(config_file: Path, duration: str) -> None:
    with pytest.raises(SettingsError, match="lease duration"):
        load(["--config", str(config_file), "--lease-duration", duration], {})


@pytest.mark.parametrize("port", ["-1", "65536", "http", "", "८०"])
def test_a_port_that_is_none_is_refused(config_file: Path, port: str) -> None:
    with pytest.raises(SettingsError, match="health port"):
        load(["--config", str(config_file), f"--health-port={port}"], {})


def test_a_ledger_nobody_can_open_is_refused_before_the_cluster_is_asked(config_file: Path) -> None:
    with pytest.raises(SettingsError, match="must be a URL"):
        load(["--config", str(config_file), "--ledger", "ftp://host/ledger"], {})
