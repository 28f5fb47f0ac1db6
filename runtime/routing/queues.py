"""Which team and which cloud flavor a LocalQueue stands for.

A burst twin or a window's queue is known by its name too, so that jobs stay ours when their flavor or class leaves the
fleet file.
"""

from __future__ import annotations

from dataclasses import dataclass

from stacks.agent_config import AgentConfig
from stacks.labels import BURST_INFIX, WINDOW_INFIX


@dataclass(frozen=True, slots=True)
class TeamQueue:
    """One LocalQueue of a team; `target` is the cloud flavor of a twin, None for a queue of local GPUs."""

    namespace: str
    name: str
    team: str
    target: str | None = None


class Queues:
    """Every queue of a fleet."""

    def __init__(self, config: AgentConfig) -> None:
        self._known: dict[tuple[str, str], TeamQueue] = {}
        self._teams: dict[str, list[tuple[str, str]]] = {}
        for name, team in config.teams.items():
            self._teams.setdefault(team.namespace, []).append((name, team.queue))
            found = [TeamQueue(team.namespace, queue, name) for queue in (team.queue, *team.window_queues.values())]
            found += [TeamQueue(team.namespace, queue, name, flavor) for flavor, queue in team.burst_queues.items()]
            self._known |= {(queue.namespace, queue.name): queue for queue in found}

    def of(self, namespace: str, name: object) -> TeamQueue | None:
        """The queue of this name, or None for one that is not ours."""
        if (known := self._known.get((namespace, str(name)))) is not None:
            return known
        for team, own in self._teams.get(namespace, ()):
            for infix, is_twin in ((BURST_INFIX, True), (WINDOW_INFIX, False)):
                if isinstance(name, str) and name.startswith(prefix := f"{own}{infix}"):
                    return TeamQueue(namespace, name, team, name.removeprefix(prefix) if is_twin else None)
        return None
