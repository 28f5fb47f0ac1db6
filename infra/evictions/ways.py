"""The two ways of dealing with evictions that ours is compared with; both get the benefit of the doubt."""

from __future__ import annotations

from typing import Final

from infra.evictions.cluster import Cluster
from infra.evictions.states import SimJob, SimNode

DETECT_SECONDS: Final = 1.0
"""From the notice until somebody acts on it: the same in every way, so that only what is done makes a difference.
`tests/bench/eviction.py` measures ours."""


class Nothing:
    """Nobody looks at notices: a node goes, and its job hangs until the node counts as unreachable."""

    cordons = False

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def noticed(self, node: SimNode) -> None:
        """Nobody looks."""

    def lost(self, job: SimJob) -> None:
        """End the job once the node counts as unreachable; its other pods die of the error at once."""
        run = job.runs

        def found() -> None:
            if job.runs == run:
                self._cluster.terminate(job, 0.0)

        self._cluster.agenda.after(self._cluster.terms.unreachable_seconds, found)

    def ended(self, job: SimJob) -> None:
        """Queue it again."""
        self._cluster.queue(job)


class Sigterm:
    """The node is cordoned and drained at once, as drainers do.

    Generous to it: every pod of the job is told, not just those on the node, each saves at SIGTERM if that fits into
    its grace period, and the job is queued again without back-off.
    """

    cordons = True

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def noticed(self, node: SimNode) -> None:
        """Drain the node."""

        def drain() -> None:
            if node.job is not None:
                self._cluster.terminate(node.job, self._cluster.terms.grace_seconds)

        self._cluster.agenda.after(DETECT_SECONDS, drain)

    def lost(self, job: SimJob) -> None:
        """A node that goes without notice is found like one that nobody watches."""
        Nothing(self._cluster).lost(job)

    def ended(self, job: SimJob) -> None:
        """Queue it again."""
        self._cluster.queue(job)
