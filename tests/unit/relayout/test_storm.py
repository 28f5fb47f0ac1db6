"""Many nodes and pools, windows that open and close, and an agent that dies at any write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from runtime.kube import PODS
from runtime.relayout.record import OUT
from runtime.relayout.view import LayoutNode, layout_node, pools_of
from tests.fakes.cluster import Key
from tests.unit.relayout.yard import EVER, NEVER, Yard, configured, offered

POOLS = {"p": 3, "q": 2}
LETTERS = st.sampled_from("abc")
Raw = dict[str, Any]


class Storm(RuleBasedStateMachine):
    """Whatever happens, jobs keep their GPUs, and no more nodes are out than allowed."""

    @initialize(most=st.integers(1, 3))
    def begin(self, most: int) -> None:
        self.most, self.window = most, EVER
        self.wanted, self.former = {"p": "a", "q": "a"}, dict[str, str]()
        self.yard = Yard(self._config())
        for pool, count in POOLS.items():
            for number in range(count):
                self.yard.add(f"{pool}{number}", pool, f"{pool}-a")
        self.yard.cluster.webhook = self._written
        self.stale: Sequence[LayoutNode] = self.yard.seen()
        self.writing = False
        self.pods = 0

    def _config(self) -> Any:
        return configured(self.wanted, self.former, most=self.most, window=self.window)

    def _written(self, key: Key, before: Raw, after: Raw) -> None:
        """Every write of a node by the agent."""
        pools = pools_of(self.yard.config)
        was, now = (layout_node(raw, pools, self.yard.now) for raw in (before, after))
        assert was is not None
        assert now is not None
        if was.label != now.label:
            assert was.tainted, "relabelled in service"
            assert now.tainted
            assert not self.yard.pods_on(key[2]), "relabelled under a running job"
        if now.tainted and not was.tainted and (was.record is None or was.record.phase not in OUT):
            others = [node for node in self.yard.seen() if node.name != was.name]
            assert self.window == EVER
            assert sum(_is_out(node) for node in others) < self.most
            assert not any(self._has_failed(node) for node in others if node.pool == was.pool)
        if was.tainted and not now.tainted:
            touched = was.record is None or was.record.phase.value != "draining"
            right = was.state == "success" and was.devices == offered(was.label)
            assert right or not touched, "given back before it was right"

    def _has_failed(self, node: LayoutNode) -> bool:
        wanted = f"{node.pool}-{self.wanted[node.pool]}"
        return node.record is not None and (
            node.record.phase.value in ("returning", "stuck")
            or (node.record.phase.value == "refused" and node.record.target == wanted)
        )

    @rule(seconds=st.sampled_from([1.0, 3.0, 6.0, 6.0, 60.0, 2_000.0, 4_000.0]), behind=st.booleans())
    def tick(self, seconds: float, behind: bool) -> None:
        seen = self.stale if behind else self.yard.seen()
        self.stale = self.yard.seen()
        self.yard.tick(seconds, seen)

    @rule(lost=st.booleans())
    def die_at_the_next_write(self, lost: bool) -> None:
        (self.yard.lose_the_next_answer if lost else self.yard.refuse_the_next_write)()
        self.yard.tick(6)
        self.yard.restart()
        self.yard.cluster.loses = lambda method, path: False
        self.yard.cluster.rule = lambda method, path, body: None

    @rule(finish=st.booleans())
    def mig_managers_work(self, finish: bool) -> None:
        self.yard.mig_managers(finish=finish)

    @rule()
    def jobs_leave(self) -> None:
        self.yard.jobs_leave()

    @rule(rounds=st.integers(1, 5))
    def time_goes_on(self, rounds: int) -> None:
        self.yard.run(rounds)

    @rule(which=st.integers(0, 4))
    def a_job_starts(self, which: int) -> None:
        free = [node.name for node in self.yard.seen() if not node.tainted]
        if free:
            self.pods += 1
            self.yard.put_pod(f"job-{self.pods}", free[which % len(free)])

    @rule()
    def jobs_end(self) -> None:
        for key in [key for key in self.yard.cluster.objects if key[0] == "v1/pods"]:
            self.yard.cluster.remove(PODS, key[2], key[1])

    @rule(pool=st.sampled_from(sorted(POOLS)), letter=LETTERS)
    def another_layout_is_wanted(self, pool: str, letter: str) -> None:
        self.former[pool], self.wanted[pool] = self.wanted[pool], letter
        self.yard.config = self._config()

    @rule(is_open=st.booleans())
    def a_window_opens_or_closes(self, is_open: bool) -> None:
        self.window = EVER if is_open else NEVER
        self.yard.config = self._config()

    @rule(pool=st.sampled_from(sorted(POOLS)), number=st.integers(0, 1), letter=LETTERS)
    def a_layout_does_not_work_on_a_node(self, pool: str, number: int, letter: str) -> None:
        self.yard.broken.add((f"{pool}{number}", f"{pool}-{letter}"))

    @rule(pool=st.sampled_from(sorted(POOLS)))
    def somebody_writes_garbage(self, pool: str) -> None:
        self.yard.annotate(f"{pool}0", "garbage")

    @invariant()
    def no_more_nodes_are_out_than_allowed(self) -> None:
        if hasattr(self, "yard"):
            assert sum(_is_out(node) for node in self.yard.seen()) <= self.most

    def teardown(self) -> None:
        """In the end every node is where it should be, or somebody is told."""
        if not hasattr(self, "yard"):
            return
        self.window = EVER
        self.yard.config = self._config()
        self.yard.tick(4_000)
        self.yard.run(80)
        alarms, nodes = self.yard.alarms(), self.yard.seen()
        failing = {node.pool for node in nodes if node.name in alarms}
        for node in nodes:
            wanted = f"{node.pool}-{self.wanted[node.pool]}"
            arrived = node.label == wanted and not node.tainted and node.state == "success"
            # The others of a pool wait for the one that fails; so do all where it is out of service for good.
            waits = bool(failing) and not node.tainted and node.state == "success"
            assert arrived or node.name in alarms or waits, (node, alarms)


def _is_out(node: LayoutNode) -> bool:
    return node.tainted or (node.record is not None and node.record.phase in OUT)


TestStorm = Storm.TestCase
TestStorm.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
