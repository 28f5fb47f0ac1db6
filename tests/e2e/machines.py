"""Machines for notices: nodes of the real control plane, each with its own node agent and its own metadata service.

The node agents are processes of their own with the rights that they have in a cluster: each shows the API server a token
that is bound to its Node. What providers say is played by tests.fakes.metadata.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runtime.eviction.notice import Notice, NoticeKind, notices_from_json
from stacks.labels import CORDONED_ANNOTATION, EVICTING_TAINT, NOTICES_ANNOTATION
from tests.e2e.conftest import Stack, wait_for
from tests.e2e.evicting import MERGE
from tests.fakes import nodeagent
from tests.fakes.metadata import BROKER, FakeMetadata

AWS = ("--provider", "aws", "--metadata-url", "{url}")
GCP = ("--provider", "gcp", "--metadata-url", "{url}")
AZURE = ("--provider", "azure", "--metadata-url", "{url}")
FILE = ("--provider", "none", "--notices-url", "{file}")
BROKERED = ("--provider", "none", "--notices-url", f"{{url}}{BROKER}")


@dataclass
class Machine:
    """A node under the eyes of its node agent; `before` is what the Node was when that came."""

    stack: Stack
    node: str
    directory: Path
    arguments: Sequence[str]
    metadata: FakeMetadata
    before: Mapping[str, Any] = field(default_factory=dict)
    _running: ExitStack = field(default_factory=ExitStack)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def file(self) -> Path:
        """Where a file of notices would be."""
        return self.directory / "notices.json"

    @property
    def log(self) -> str:
        """Everything that its node agents logged."""
        return (self.directory / "log").read_text()

    def start(self) -> None:
        """Start a node agent, and wait until it reads."""
        started = self.log.count('"msg":"started"') if (self.directory / "log").exists() else 0
        account = self.renew_account()
        log = self._running.enter_context((self.directory / "log").open("ab"))
        arguments = tuple(text.format(url=self.metadata.url, file=self.file) for text in self.arguments)
        server = self.stack.kube.server
        self._process = self._running.enter_context(
            nodeagent.node_agent(self.node, server=server, account=account, arguments=arguments, log=log)
        )
        wait_for(f"the node agent of {self.node}", lambda: self.log.count('"msg":"started"') > started)

    def renew_account(self) -> Path:
        """Give the node agent a new token, bound to the Node that now has this name."""
        state = self.stack.plane.state
        return nodeagent.write_account(self.stack.kube, state, self.directory / "account", node=self.node)

    def kill(self) -> None:
        """Kill the node agent where it stands; the Node stays as it is."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """End the node agent, whatever became of it."""
        self._running.close()

    @property
    def alive(self) -> bool:
        """Whether the node agent runs."""
        return self._process is not None and self._process.poll() is None

    def raw(self) -> dict[str, Any]:
        """The Node."""
        return self.stack.kube.get("v1", "Node", self.node)

    def said(self) -> dict[NoticeKind, Notice]:
        """The notices on the Node, by kind."""
        text = self.raw()["metadata"].get("annotations", {}).get(NOTICES_ANNOTATION, "[]")
        return {notice.kind: notice for notice in notices_from_json(text)}

    def await_said(self, *kinds: NoticeKind) -> dict[NoticeKind, Notice]:
        """Wait until exactly these kinds of notices stand on the Node."""
        names = ", ".join(kinds) or "nothing"
        wait_for(f"{names} on {self.node}", lambda: set(self.said()) == set(kinds))
        return self.said()

    def await_before(self) -> None:
        """Wait until the Node is as it was before its notices."""
        wait_for(f"{self.node} to be as before", lambda: as_it_stands(self.raw()) == self.before)

    def edit(self, annotations: Mapping[str, str | None] | None = None, **spec: Any) -> None:
        """Write the Node as somebody who may do everything."""
        path = self.stack.kube.path("v1", "Node", self.node)
        body = {"metadata": {"annotations": dict(annotations or {})}, "spec": spec}
        self.stack.kube.request("PATCH", path, body, content_type=MERGE)

    def say(self, *entries: Mapping[str, Any]) -> None:
        """Write the file of notices, in one move as an operator should."""
        fresh = self.file.with_suffix(".new")
        fresh.write_text(json.dumps(entries))
        fresh.rename(self.file)

    def withdraw(self) -> None:
        """Everybody takes back what they said."""
        self.metadata.aws.clear()
        self.metadata.events.clear()
        self.metadata.broker = None
        self.metadata.set_gcp("preempted", "FALSE")
        self.metadata.set_gcp("maintenance-event", "NONE")
        self.file.unlink(missing_ok=True)


def as_it_stands(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Everything of a Node that a node agent could spoil; taints as a set, since each is one of its own."""
    spec = {key: value for key, value in raw["spec"].items() if key != "taints"}
    taints = sorted((one["key"], one.get("value", ""), one["effect"]) for one in raw["spec"].get("taints", ()))
    return {
        "labels": raw["metadata"].get("labels", {}),
        "annotations": raw["metadata"].get("annotations", {}),
        "spec": spec,
        "taints": taints,
    }


def evicting_taints(raw: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Value and effect of our taint."""
    return [(one["value"], one["effect"]) for one in raw["spec"].get("taints", ()) if one["key"] == EVICTING_TAINT]


def is_cordoned_by_us(raw: Mapping[str, Any]) -> bool:
    """Whether the node takes no pods, and the record says that this is ours to undo."""
    return bool(raw["spec"].get("unschedulable")) and CORDONED_ANNOTATION in raw["metadata"].get("annotations", {})


Say = Callable[[Machine], None]
"""What a provider begins to say of a machine."""
