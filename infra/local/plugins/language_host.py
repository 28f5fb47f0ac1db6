"""A language host for Python programs and policy packs, used where Pulumi's own `pulumi-language-python` is absent.

It does not install dependencies, generate code or list packages: `uv sync` does the first, nothing here needs the
rest, and the engine is told so by the protocol's UNIMPLEMENTED. Invariants: a child never outlives the host (it
holds the host's standard output, and the engine would wait for it), and the interpreter is the one that the
project's `virtualenv` option names, else the one that runs this file.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, NoReturn

import grpc
from google.protobuf import empty_pb2, json_format

from infra.local.plugins import serving

serving.import_protocol_only()

from pulumi.runtime.proto import language_pb2, language_pb2_grpc, plugin_pb2  # noqa: E402 the line above must be first

VERSION = "0.1.0"
PROGRAM_RUNNER = Path(__file__).with_name("program_runner.py")
PIPE_CHUNK_BYTES = 65536

# program_runner.py's word for "the engine has the error already"; Pulumi's own executor uses the same number.
ALREADY_REPORTED = 32


class InterpreterMissing(Exception):
    """The project names a virtual environment that has no interpreter."""


class Children:
    """The interpreters this host has started and that may still run."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()

    def start(
        self, command: list[str], folder: str, environment: Mapping[str, str], *, piped: bool
    ) -> subprocess.Popen[bytes]:
        """Start one child; `piped` keeps its output for the caller, otherwise it shares ours.

        The child has a process group of its own. The engine ends a plugin with SIGINT to the plugin's whole group, and
        a program that was still waiting for its resources would show that as a KeyboardInterrupt of its own making.
        """
        stream = subprocess.PIPE if piped else None
        with self._lock:
            child = subprocess.Popen(
                command,
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                process_group=0,
            )
            self._running.add(child)
        return child

    def wait(self, child: subprocess.Popen[bytes]) -> int:
        """Wait for the child's end; return its exit status."""
        status = child.wait()
        self._running.discard(child)
        return status

    def kill(self) -> None:
        """Kill what still runs. Takes no lock: it is called from a signal handler."""
        for child in tuple(self._running):
            child.kill()


def interpreter_of(info: language_pb2.ProgramInfo) -> str:
    """The interpreter of a project or policy pack.

    Raises:
        InterpreterMissing: the `virtualenv` option names a folder without one.
    """
    folder = json_format.MessageToDict(info.options).get("virtualenv")
    if not folder:
        return sys.executable
    python = Path(info.root_directory, str(folder), "bin", "python")
    if not python.exists():
        raise InterpreterMissing(
            f"runtime.options.virtualenv is {folder!r}, but {python} does not exist; "
            "create the environment (uv sync) or correct the option in the project file"
        )
    return str(python)


def run_command(request: language_pb2.RunRequest, engine_address: str) -> list[str]:
    """The command line that runs the program of one request. `-P` keeps this folder off the program's import path."""
    info = request.info
    flags = {
        "monitor": request.monitor_address,
        "engine": engine_address,
        "project": request.project,
        "stack": request.stack,
        "organization": request.organization,
        "root_directory": info.root_directory,
        "pwd": request.pwd,
        "dry_run": str(request.dryRun).lower(),
        "parallel": str(request.parallel),
    }
    pairs = [text for name, value in flags.items() for text in (f"--{name}", value)]
    program = [info.entry_point or ".", *request.args]
    return [interpreter_of(info), "-u", "-P", str(PROGRAM_RUNNER), *pairs, *program]


def plugin_command(request: language_pb2.RunPluginRequest) -> list[str]:
    """The command line of a plugin that is a folder of Python: a policy pack, or any other with a `__main__`."""
    folder = request.info.program_directory
    python = [interpreter_of(request.info), "-u"]
    if request.kind == "analyzer":
        return [*python, "-m", "pulumi.policy", *request.args, folder]
    return [*python, folder, *request.args]


def output_of(child: subprocess.Popen[bytes]) -> Iterator[language_pb2.RunPluginResponse]:
    """What the child writes, as it writes it, until both streams are closed."""
    chunks: queue.SimpleQueue[language_pb2.RunPluginResponse | None] = queue.SimpleQueue()

    def pump(stream: IO[bytes], *, is_error: bool) -> None:
        while chunk := os.read(stream.fileno(), PIPE_CHUNK_BYTES):
            response = language_pb2.RunPluginResponse
            chunks.put(response(stderr=chunk) if is_error else response(stdout=chunk))
        chunks.put(None)

    assert child.stdout is not None
    assert child.stderr is not None
    for stream, is_error in ((child.stdout, False), (child.stderr, True)):
        threading.Thread(target=pump, args=(stream,), kwargs={"is_error": is_error}, daemon=True).start()
    open_streams = 2
    while open_streams:
        chunk = chunks.get()
        if chunk is None:
            open_streams -= 1
        else:
            yield chunk


class LanguageHost(language_pb2_grpc.LanguageRuntimeServicer):
    """The calls of the engine that a Python program needs."""

    def __init__(self, engine_address: str, children: Children) -> None:
        self._engine_address = engine_address
        self._children = children

    def Handshake(
        self, request: language_pb2.LanguageHandshakeRequest, context: grpc.ServicerContext
    ) -> language_pb2.LanguageHandshakeResponse:
        """Take the engine's address from the protocol, where it is offered."""
        self._engine_address = request.engine_address or self._engine_address
        return language_pb2.LanguageHandshakeResponse()

    def GetPluginInfo(self, request: empty_pb2.Empty, context: grpc.ServicerContext) -> plugin_pb2.PluginInfo:
        """Say which host this is."""
        return plugin_pb2.PluginInfo(version=VERSION)

    def GetRequiredPackages(
        self, request: language_pb2.GetRequiredPackagesRequest, context: grpc.ServicerContext
    ) -> language_pb2.GetRequiredPackagesResponse:
        """Ask for nothing ahead of the run: a provider is looked up when its first resource is declared."""
        return language_pb2.GetRequiredPackagesResponse()

    def About(self, request: language_pb2.AboutRequest, context: grpc.ServicerContext) -> language_pb2.AboutResponse:
        """Name the interpreter, for `pulumi about`."""
        return language_pb2.AboutResponse(executable=sys.executable, version=sys.version.split()[0])

    def Run(self, request: language_pb2.RunRequest, context: grpc.ServicerContext) -> language_pb2.RunResponse:
        """Run the program and report how it ended."""
        environment = {
            **os.environ,
            "PULUMI_CONFIG": json.dumps(dict(request.config)),
            "PULUMI_CONFIG_SECRET_KEYS": json.dumps(list(request.configSecretKeys)),
        }
        try:
            command = run_command(request, self._engine_address)
        except InterpreterMissing as error:
            return language_pb2.RunResponse(error=str(error))
        child = self._children.start(command, request.pwd, environment, piped=False)
        context.add_callback(child.terminate)
        status = self._children.wait(child)
        if status == ALREADY_REPORTED:
            return language_pb2.RunResponse(bail=True)
        return language_pb2.RunResponse(error=f"the program exited with status {status}" if status else "")

    def RunPlugin(
        self, request: language_pb2.RunPluginRequest, context: grpc.ServicerContext
    ) -> Iterator[language_pb2.RunPluginResponse]:
        """Run a policy pack or another folder plugin and pass its output on."""
        try:
            command = plugin_command(request)
        except InterpreterMissing as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        is_policy_pack = request.kind == "analyzer"
        folder = request.info.program_directory if is_policy_pack else request.pwd
        environment = dict(entry.split("=", 1) for entry in request.env)
        child = self._children.start(command, folder, environment, piped=True)
        context.add_callback(child.terminate)
        yield from output_of(child)
        yield language_pb2.RunPluginResponse(exitcode=self._children.wait(child))

    def Cancel(self, request: empty_pb2.Empty, context: grpc.ServicerContext) -> empty_pb2.Empty:
        """Do nothing: the engine closes the program's connections itself, and the program ends by that."""
        return empty_pb2.Empty()


def main() -> None:
    """Serve until the engine stops this process. The last argument is the engine's address."""
    children = Children()

    def stop(signal_number: int, frame: object) -> NoReturn:
        children.kill()
        os._exit(0)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    host = LanguageHost(sys.argv[-1], children)
    serving.serve(lambda server: language_pb2_grpc.add_LanguageRuntimeServicer_to_server(host, server))


if __name__ == "__main__":
    main()
