"""The agent's configuration while it runs: watch its ConfigMap, judge each change, hand over what can be used.

The mounted file is read once, at the start; a mounted ConfigMap lags by a minute or more and tells nobody when it
changes. What cannot be used, or changes what may not change while an agent runs, is refused: the former configuration
stands, an alarm stands as long as the ConfigMap is as it is, and the reason is logged once. A ConfigMap that is gone
says nothing: the former configuration stands without an alarm, because a fleet is also taken down in this order.

Reading YAML of a megabyte takes seconds, so it is done beside the event loop, on which the lease is renewed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from runtime.cache import Cache, Source
from runtime.errors import SettingsError
from runtime.kube import CONFIG_MAPS, Kube
from runtime.settings import CONFIG_KEY, read_config
from runtime.wire import Raw
from stacks.agent_config import AgentConfig
from stacks.labels import AGENT_NAME

FROZEN: Final = ("gate", "ledger", "replay_speed")
"""The ledger is claimed and its time runs at one speed as long as an agent lives; Kueue asks the gate by its name."""

log = logging.getLogger(__name__)


class ConfigText(NamedTuple):
    """What the ConfigMap holds; None where it lacks our key."""

    text: str | None


def judge(text: str | None, current: AgentConfig) -> AgentConfig:
    """The configuration to go on with, which may equal the current one.

    Raises:
        SettingsError: in one line, when the text is refused.
    """
    source = f"ConfigMap {AGENT_NAME}"
    if text is None:
        raise SettingsError(f"{source}: has no entry {CONFIG_KEY}; deploy it anew with `pulumi up`")
    wanted = read_config(text, source)
    changed = [name for name in FROZEN if getattr(wanted, name) != getattr(current, name)]
    if changed:
        raise SettingsError(
            f"{source}: {', '.join(changed)} cannot change while the agent runs; "
            f"restart it: kubectl rollout restart deployment/{AGENT_NAME}"
        )
    return wanted


class Reload:
    """Follows one ConfigMap; `accept` is called with each configuration that differs from the one before."""

    def __init__(self, kube: Kube, namespace: str, current: AgentConfig, accept: Callable[[AgentConfig], None]) -> None:
        self._changed = asyncio.Event()
        source = Source(CONFIG_MAPS, namespace, fields=f"metadata.name={AGENT_NAME}")
        self._cache: Cache[ConfigText] = Cache(kube, source, _config_text, self._changed)
        self._current = current
        self._judged: ConfigText | None = None
        self._accept = accept
        self.refused: str | None = None
        """Why the ConfigMap as it is now is not used; None if it is, or there is none."""

    async def run(self) -> None:
        """Follow it until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._cache.run())
            while True:
                await self._changed.wait()
                self._changed.clear()
                await self._look()

    async def _look(self) -> None:
        found = next(iter(self._cache.values()), None)
        if found is None or found == self._judged:
            return
        self._judged = found
        try:
            wanted = await asyncio.to_thread(judge, found.text, self._current)
        except SettingsError as error:
            self.refused = str(error)
            log.error("the changed configuration is refused; the former one stands", extra={"error": self.refused})
            return
        if self.refused is not None:
            log.info("the configuration can be used again")
        self.refused = None
        if wanted != self._current:
            self._current = wanted
            self._accept(wanted)


def _config_text(raw: Raw) -> ConfigText | None:
    if raw["metadata"].get("name") != AGENT_NAME:
        return None
    text = (raw.get("data") or {}).get(CONFIG_KEY)
    return ConfigText(text if isinstance(text, str) else None)
