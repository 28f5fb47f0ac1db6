"""Runs the real Pulumi command line against a state directory of its own.

It neither fetches Pulumi (see `toolchain`) nor knows what the program declares. Invariants: nothing outside the
state directory is written, above all not the user's own Pulumi home; an official plugin that is present is used and
never shadowed; the environment is complete, so that a user who exports it can go on with plain `pulumi`.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.local import plugin_home
from infra.local.errors import LocalError

logger = logging.getLogger(__name__)

_INTERRUPT_GRACE_SECONDS = 30.0


class EngineError(LocalError):
    """Pulumi could not be run, or did not do what was needed to go on."""


@dataclass(frozen=True)
class EngineResult:
    """How one command ended; the texts are empty where the output went to the terminal."""

    command: tuple[str, ...]
    status: int
    stdout: str = ""
    stderr: str = ""

    @property
    def succeeded(self) -> bool:
        """Whether Pulumi reported success."""
        return self.status == 0

    def document(self) -> Any:
        """The JSON document on standard output.

        Raises:
            EngineError: there is none.
        """
        try:
            return json.loads(self.stdout)
        except ValueError:
            said = self.stderr.strip() or self.stdout.strip() or "it said nothing"
            raise EngineError(f"`{' '.join(self.command)}` ended with {self.status} and no JSON: {said}") from None


class Engine:
    """One project, one state directory, one Pulumi.

    Args:
        pulumi: the command-line program.
        project: the folder with Pulumi.yaml.
        state: where Pulumi's home and the stacks' state go.
        python: the interpreter that runs the embedded plugins.
        kubeconfig: the cluster that the stack talks to; none leaves the caller's.
        variables: more environment of what is run; not part of `environment`.
        checkpoints: save the state after every step. False saves it at the end only, which is many times faster
            with hundreds of resources and loses everything if Pulumi is killed: for tests.
    """

    def __init__(
        self,
        pulumi: Path,
        project: Path,
        state: Path,
        python: Path,
        kubeconfig: Path | None = None,
        *,
        variables: Mapping[str, str] | None = None,
        checkpoints: bool = True,
    ) -> None:
        self.pulumi = pulumi
        self.project = project
        self.home = state.absolute() / "home"
        self.backend = state.absolute() / "backend"
        self.python = python
        self.kubeconfig = kubeconfig
        self.variables = dict(variables or {})
        self.checkpoints = checkpoints

    def environment(self) -> dict[str, str]:
        """The variables that make plain `pulumi` use this state: offline and without a passphrase.

        Why no passphrase: the state is a directory of the user's own, and stack `local` has no secret worth one. A
        passphrase that the user has set is left alone.
        """
        variables = {
            "PULUMI_HOME": str(self.home),
            "PULUMI_BACKEND_URL": self.backend.as_uri(),
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            "PULUMI_DISABLE_REGISTRY_RESOLVE": "true",
            "PULUMI_DIY_BACKEND_DISABLE_CHECKPOINT_BACKUPS": "true",
            "PULUMI_CREDENTIAL_STORE": "plaintext",
        }
        if not os.environ.keys() & {"PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE"}:
            variables["PULUMI_CONFIG_PASSPHRASE"] = ""
        if not self.checkpoints:
            variables["PULUMI_SKIP_CHECKPOINTS"] = "true"
        if self.kubeconfig is not None:
            variables["KUBECONFIG"] = str(self.kubeconfig)
        return variables

    def install(self) -> list[str]:
        """Put the embedded plugins where official ones are absent; return one line about each plugin."""
        self.backend.mkdir(parents=True, exist_ok=True)
        return plugin_home.install(self.home, self.pulumi, self.python)

    def run(self, *arguments: str, capture: bool = False, variables: Mapping[str, str] | None = None) -> EngineResult:
        """Run one Pulumi command in the project; its output goes to the terminal unless captured.

        Ctrl-C reaches Pulumi too, which ends its step and writes its state: it is given the time to.

        Raises:
            EngineError: the command cannot be started.
        """
        command = (str(self.pulumi), "--non-interactive", *arguments) if capture else (str(self.pulumi), *arguments)
        stream = subprocess.PIPE if capture else None
        try:
            process = subprocess.Popen(
                command,
                cwd=self.project,
                env={**os.environ, **self.environment(), **self.variables, **(variables or {})},
                stdin=subprocess.DEVNULL if capture else None,
                stdout=stream,
                stderr=stream,
                text=True,
            )
        except OSError as error:
            raise EngineError(f"cannot run {self.pulumi}: {error.strerror}") from error
        with process:
            try:
                stdout, stderr = process.communicate()
            except KeyboardInterrupt:
                _end(process)
                raise
        return EngineResult(command, process.returncode, stdout or "", stderr or "")

    def preview(self, stack: str, *extra: str, as_json: bool = False, capture: bool = False) -> EngineResult:
        """Show what `up` would do."""
        return self._operate("preview", stack, extra, as_json=as_json, capture=capture)

    def up(self, stack: str, *extra: str, as_json: bool = False, capture: bool = False) -> EngineResult:
        """Make the cluster what the program says, without a separate preview and without a question."""
        return self._operate("up", stack, ("--yes", "--skip-preview", *extra), as_json=as_json, capture=capture)

    def refresh(self, stack: str, *extra: str, as_json: bool = False, capture: bool = False) -> EngineResult:
        """Make the state what the cluster says."""
        return self._operate("refresh", stack, ("--yes", "--skip-preview", *extra), as_json=as_json, capture=capture)

    def destroy(self, stack: str, *extra: str, as_json: bool = False, capture: bool = False) -> EngineResult:
        """Delete everything in the state."""
        return self._operate("destroy", stack, ("--yes", "--skip-preview", *extra), as_json=as_json, capture=capture)

    def select_or_init(self, stack: str) -> None:
        """Make the stack the current one, creating its state if there is none.

        A stack file that has an encryption salt is left as it is to the last byte; a new one gets its salt.

        Raises:
            EngineError: Pulumi refused.
        """
        if self.run("stack", "select", "--stack", stack, capture=True).succeeded:
            return
        file = self.stack_file(stack)
        before = file.read_bytes() if file.exists() else None
        created = self.run("stack", "init", "--stack", stack, capture=True)
        if before is not None and b"\nencryptionsalt:" in b"\n" + before and file.read_bytes() != before:
            file.write_bytes(before)
        if not created.succeeded:
            raise EngineError(f"stack {stack!r} cannot be created: {created.stderr.strip() or created.stdout.strip()}")

    def stack_file(self, stack: str) -> Path:
        """Where Pulumi keeps the stack's configuration."""
        import yaml  # here, so that a command that needs no file does not pay for it

        project = yaml.safe_load((self.project / "Pulumi.yaml").read_text(encoding="utf-8"))
        return self.project / str(project.get("stackConfigDir") or ".") / f"Pulumi.{stack}.yaml"

    def clear_stale_locks(self) -> list[str]:
        """Remove the locks of Pulumi processes of this host that are gone; return one line about each.

        The file backend's lock is a file with its owner's process number; a Pulumi that is killed leaves it, and
        every later command would stop at it.
        """
        cleared = []
        for path in sorted((self.backend / ".pulumi" / "locks").rglob("*.json")):
            owner = _lock_owner(path)
            if owner is not None and not _is_pulumi(owner):
                path.unlink(missing_ok=True)
                cleared.append(f"removed the lock that Pulumi process {owner} left when it ended: {path.name}")
        return cleared

    def _operate(
        self, operation: str, stack: str, extra: tuple[str, ...], *, as_json: bool, capture: bool
    ) -> EngineResult:
        for line in self.clear_stale_locks():
            logger.warning(line)
        arguments = (operation, "--stack", stack, *(("--json",) if as_json else ()), *extra)
        return self.run(*arguments, capture=capture or as_json)


def _end(process: subprocess.Popen[str]) -> None:
    """Wait for an interrupted Pulumi; one that takes too long, or a second Ctrl-C, ends it."""
    try:
        process.wait(_INTERRUPT_GRACE_SECONDS)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.kill()


def _lock_owner(path: Path) -> int | None:
    """The process that holds a lock, or None where it is another host's or cannot be read."""
    try:
        lock = json.loads(path.read_bytes())
        return int(lock["pid"]) if lock["hostname"] == socket.gethostname() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_pulumi(process: int) -> bool:
    """Whether the process runs and is a Pulumi; where the system does not say what it is, running is enough."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it runs, under another user
    try:
        return "pulumi" in Path(f"/proc/{process}/comm").read_text(encoding="utf-8")
    except OSError:
        return not Path("/proc/self/comm").exists()
