"""A ledger on disk and a cluster that is not there, for the commands that read both."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from infra.commands.cluster import Cluster
from runtime.clock import Clock
from runtime.cost.ledger import Attempt, TopUp, close
from runtime.errors import Forbidden, KubeError
from runtime.store import Owner, Store
from stacks.agent_config import AgentConfig
from tests.builders import HOUR, NOON, a_config, a_team, an_opening

CONFIG = a_config(
    budget={"daily": "100 USD", "monthly": "1000 USD"},
    teams={
        "vision": a_team("vision", budget={"monthly": "3 USD", "time_zone": "Europe/Berlin"}),
        "nlp": a_team("nlp"),
    },
    projects={"llm": {"budget": {"weekly": "9 USD", "kind": "soft"}}},
)
TOP_UP = TopUp("t-1", "team vision", Decimal(5), "deadline", "ada", NOON - HOUR, NOON + 20 * HOUR)


@dataclass
class FakeCluster:
    """Answers what the commands ask of a cluster, and remembers what was written."""

    config: AgentConfig = CONFIG
    now: float = NOON
    refuses: KubeError | None = None
    written: dict[str, str] = field(default_factory=dict)

    async def __aenter__(self) -> FakeCluster:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def send(self, method: str, path: str, *, body: Any = None) -> Any:
        assert (method, path) == ("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews")
        if isinstance(self.refuses, Forbidden) and "who" in str(self.refuses):
            raise self.refuses
        return {"status": {"userInfo": {"username": "ada@example.com"}}}

    async def patch_config_map(self, namespace: str, name: str, data: Mapping[str, str]) -> None:
        assert (namespace, name) == ("gpufleet-system", "gpufleet-top-ups")
        if self.refuses is not None:
            raise self.refuses
        self.written |= data

    def seen(self) -> Cluster:
        """What `read_cluster` would read."""
        connection: Any = self
        return Cluster(connection, self.config, Clock(real_now=lambda: self.now))


def a_ledger(directory: Path, *, packed: bool = False) -> str:
    """A ledger with a finished attempt of last week, one of an hour ago, one that runs, and a top-up; its URL."""

    async def written() -> None:
        now = NOON
        store = Store(directory.as_uri(), Clock(real_now=lambda: now), Owner("cluster-1", 1.0))
        await store.refresh()
        for uid, hours, closed in (("old", 7 * 24, True), ("done", 2, True), ("runs", 1, False)):
            opening = an_opening(attempt=Attempt(uid, 1), job=uid, opened_at=NOON - hours * HOUR, project="llm")
            await store.open(opening)
            if closed:
                await store.close(close(opening, opening.opened_at, opening.opened_at + HOUR, "finished"))
        await store.add_top_up(TOP_UP)
        if packed:
            assert await store.compact(NOON)

    asyncio.run(written())
    return directory.as_uri()


def damage(directory: Path, uid: str, **fields: Any) -> None:
    """Change fields of an attempt's closing by hand."""
    [path] = directory.glob(f"v1/*/{uid}.1.close.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
