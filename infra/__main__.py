"""Pulumi's entry point: load the stack's file, build, export."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pulumi
from pulumi.runtime.config import is_config_secret

from infra.program import build
from stacks.load import KEY, ConfigError, read_stack


def main() -> None:
    """Build the stack that Pulumi runs.

    Raises:
        pulumi.RunError: when the configuration is wrong; Pulumi prints it without a traceback.
    """
    config = pulumi.Config("gpufleet")
    relative = Path("stacks") / f"Pulumi.{pulumi.get_stack()}.yaml"
    if is_config_secret(KEY):
        raise pulumi.RunError(f"{relative}: {KEY} holds an encrypted value; make it a sibling secret and name it")
    try:
        file = Path(pulumi.get_root_directory()) / relative
        reading = read_stack(file, config.get_object("fleet"), display=str(relative))
    except ConfigError as error:
        raise pulumi.RunError(f"the fleet file is wrong\n{error}") from None
    for warning in reading.warnings:
        log = pulumi.log.info if warning.severity == "note" else pulumi.log.warn
        log(str(warning))
    for name, value in asdict(build(reading.fleet, config)).items():
        pulumi.export(name, value)


if __name__ == "__main__":
    main()
