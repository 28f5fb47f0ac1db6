"""Runs one Pulumi program in its own interpreter, as `language_host` asks.

It does not find the interpreter, install anything or retry, and it imports nothing of ours: the interpreter is
the project's, which need not have us installed. Invariants: the configuration comes from the
environment (it may be large, and a secret must not appear in a process list); the exit status is 0 for success and
`ALREADY_REPORTED` when the error has been sent to the engine, so that it is shown once.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import runpy
import sys
import traceback

import pulumi
import pulumi.runtime

# The exit status that tells the language host (ours and Pulumi's own) that the engine has the error already.
ALREADY_REPORTED = 32


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """Read the flags that `language_host` writes."""
    parser = argparse.ArgumentParser(description="Run a Pulumi program for the engine that listens at --monitor.")
    for flag in ("monitor", "engine", "project", "stack", "organization", "root_directory", "pwd", "dry_run"):
        parser.add_argument(f"--{flag}", required=True)
    parser.add_argument("--parallel", type=int, required=True)
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser.parse_args(arguments)


def configure(flags: argparse.Namespace) -> None:
    """Point the SDK of this process at the engine."""
    pulumi.runtime.set_all_config(pulumi.runtime.get_config_env(), pulumi.runtime.get_config_secret_keys_env())
    pulumi.runtime.configure(
        pulumi.runtime.Settings(
            project=flags.project,
            stack=flags.stack,
            monitor=flags.monitor,
            engine=flags.engine,
            parallel=flags.parallel,
            dry_run=flags.dry_run == "true",
            organization=flags.organization,
            root_directory=flags.root_directory,
        )
    )


async def run_program(program: str) -> None:
    """Run the program's folder or file as `__main__`, and wait for every resource it declared."""

    def execute() -> None:
        runpy.run_path(program, run_name="__main__")

    await pulumi.runtime.run_in_stack(execute)


def main(arguments: list[str]) -> int:
    """Run the program that the flags name; return the exit status."""
    flags = parse_arguments(arguments)
    configure(flags)
    os.chdir(flags.pwd)
    sys.argv = [flags.program, *flags.arguments]
    # A failed resource leaves futures that nobody will await; asyncio would complain about each of them.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(run_program(flags.program))
    except pulumi.RunError as error:
        pulumi.log.error(str(error))
        return ALREADY_REPORTED
    except Exception:  # the program is not ours: whatever it raises is its user's to read
        pulumi.log.error("Program failed with an unhandled exception:\n" + traceback.format_exc())
        return ALREADY_REPORTED
    finally:
        loop.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
