"""The configuration in force, with the caches and the actor that belong to it, and the change to the next one.

A changed configuration fills caches of its own first, while the former ones go on serving; one that changes again
before it was in force is overtaken.

Invariant: what is in force changes only in `advance`, so a tick sees one configuration from its beginning to its end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from runtime import metrics
from runtime.evictions import Evictions
from runtime.routing.act import Actor
from runtime.watching import Watching
from stacks.agent_config import AgentConfig

log = logging.getLogger(__name__)


class Changeover:
    """Its arguments make the caches of a configuration, and the actor and the evictions that go with them."""

    def __init__(
        self,
        first: AgentConfig,
        watch: Callable[[AgentConfig], Watching],
        act_for: Callable[[Watching], Actor],
        evict_for: Callable[[Watching, Actor], Evictions],
    ) -> None:
        self._watch = watch
        self._act_for = act_for
        self._evict_for = evict_for
        self._group: asyncio.TaskGroup | None = None
        self._task: asyncio.Task[None] | None = None
        self._next: tuple[Watching, asyncio.Task[None]] | None = None
        self.watching = watch(first)
        self.actor = act_for(self.watching)
        self.evictions = evict_for(self.watching, self.actor)

    @property
    def config(self) -> AgentConfig:
        """The configuration in force."""
        return self.watching.config

    def start(self, group: asyncio.TaskGroup) -> None:
        """Begin to fill the caches, as tasks of this group."""
        self._group = group
        self._task = group.create_task(self.watching.run())

    def stop(self) -> None:
        """End every task that was begun."""
        for task in (self._task, self._next[1] if self._next else None):
            if task is not None:
                task.cancel()
        self._group = None

    def accept(self, config: AgentConfig) -> None:
        """Prepare a changed configuration."""
        if self._group is None:
            return
        if self._next is not None:
            self._next[1].cancel()
        watching = self._watch(config)
        self._next = (watching, self._group.create_task(watching.run()))
        log.info("the configuration changed; it takes effect once everything is listed anew")

    async def advance(self) -> bool:
        """Put the changed configuration in force, if there is one and its caches are complete; says whether it did.

        What the former actor still writes for people ends first.
        """
        if self._next is None or not self._next[0].complete:
            return False
        before = self.config
        self.actor.stop()
        await self.actor.finish()
        await self.evictions.close()
        if self._task is not None:
            self._task.cancel()
        (self.watching, self._task), self._next = self._next, None
        self.actor = self._act_for(self.watching)
        self.evictions = self._evict_for(self.watching, self.actor)
        metrics.forget_absent(before, self.config)
        metrics.reloads.inc()
        log.info("the changed configuration is in force")
        return True
