"""A small client of the language server protocol over stdio: enough to ask an editor's questions about one file.

It does not follow the protocol beyond that: no changes of text, no several documents at once. Every read has a limit,
so that a server that hangs fails the test instead of the run.
"""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

_LIMIT_SECONDS: Final = 15.0
_ENDING_SECONDS: Final = 5.0


class LanguageServer:
    """A running server; as a context manager it is initialized on entry and gone on exit."""

    def __init__(self, command: Sequence[str], settings: dict[str, Any]) -> None:
        self._settings = settings
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        self._inbox: queue.Queue[dict[str, Any]] = queue.Queue()
        self._diagnostics: dict[str, list[dict[str, Any]]] = {}
        self._last_id = 0
        self._reader = threading.Thread(target=self._read, name="language-server-reader")

    def __enter__(self) -> Self:
        self._reader.start()
        markup = {"contentFormat": ["markdown"], "completionItem": {"documentationFormat": ["markdown"]}}
        capabilities = {"textDocument": {"completion": markup, "hover": markup}, "workspace": {"configuration": True}}
        self.ask("initialize", {"processId": None, "rootUri": None, "capabilities": capabilities})
        self._send({"method": "initialized", "params": {}})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(_ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._input.close()
        self._reader.join()
        self._output.close()

    def open(self, path: Path, text: str) -> list[dict[str, Any]]:
        """Show the server a text under a path that it has not seen; the result is what it finds wrong with it."""
        uri = path.as_uri()
        document = {"uri": uri, "languageId": "yaml", "version": 1, "text": text}
        self._send({"method": "textDocument/didOpen", "params": {"textDocument": document}})
        while uri not in self._diagnostics:
            self._handle(self._next())
        return self._diagnostics[uri]

    def complete(self, path: Path, line: int, column: int) -> list[dict[str, Any]]:
        """What may be written at a place, counted from zero."""
        answer = self.ask("textDocument/completion", _place(path, line, column))
        items: list[dict[str, Any]] = answer["items"] if isinstance(answer, dict) else answer or []
        return items

    def hover(self, path: Path, line: int, column: int) -> str:
        """What is shown about the word at a place, counted from zero; empty where nothing is."""
        answer = self.ask("textDocument/hover", _place(path, line, column))
        return str(answer["contents"]["value"]) if answer else ""

    def ask(self, method: str, parameters: dict[str, Any]) -> Any:
        """The result of a request.

        Raises:
            RuntimeError: when the server answers with an error.
            TimeoutError: when it does not answer.
        """
        self._last_id += 1
        asked = self._last_id
        self._send({"id": asked, "method": method, "params": parameters})
        while True:
            message = self._next()
            if message.get("id") == asked and "method" not in message:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message.get("result")
            self._handle(message)

    def _next(self) -> dict[str, Any]:
        try:
            return self._inbox.get(timeout=_LIMIT_SECONDS)
        except queue.Empty:
            raise TimeoutError(f"the language server said nothing for {_LIMIT_SECONDS:.0f} s") from None

    def _handle(self, message: dict[str, Any]) -> None:
        method, parameters = message.get("method"), message.get("params")
        if method == "textDocument/publishDiagnostics" and parameters:
            self._diagnostics[parameters["uri"]] = parameters["diagnostics"]
        elif method is not None and "id" in message:
            self._send({"id": message["id"], "result": self._answer(method, parameters)})

    def _answer(self, method: str, parameters: Any) -> Any:
        if method != "workspace/configuration":
            return None
        return [self._settings.get(item.get("section")) for item in parameters["items"]]

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._input.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._input.flush()

    def _read(self) -> None:
        while (message := _message(self._output)) is not None:
            self._inbox.put(message)


def _message(stream: IO[bytes]) -> dict[str, Any] | None:
    length = 0
    while (header := stream.readline().strip()) != b"":
        name, _, value = header.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    if not length:
        return None
    message: dict[str, Any] = json.loads(stream.read(length))
    return message


def _place(path: Path, line: int, column: int) -> dict[str, Any]:
    return {"textDocument": {"uri": path.as_uri()}, "position": {"line": line, "character": column}}
