"""A storm of evictions on a fleet of its own: its jobs, and what strikes the machines that they run on.

It judges little; what must be true afterwards is in tests.e2e.aftermath. No job fits its team's local GPUs, so all are
in the cloud, each pod on a node of its own.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from infra.replay.jobs import job_manifest
from infra.replay.trace import TraceJob
from runtime.eviction.marker import marker_from_json
from runtime.eviction.notice import NoticeKind
from runtime.eviction.view import Phase
from stacks.labels import EVICTION_ANNOTATION
from tests.e2e.conftest import KUEUE, Stack, condition, wait_for
from tests.e2e.storming import Cloud
from tests.e2e.test_chaos import kill_agent

Job = tuple[str, str]
"""Team and name."""

STORM, THRIFTY = "storm", "thrifty"
NODE_GPUS = 8
LONGEST_MINUTES: Final = 1_200
GRACE_SECONDS: Final = 10

STORM_FLEET_FILE = """\
config:
  gpufleet:fleet:
    schema_version: 1
    organization: acme
    clusters:
      lab: {kind: existing}
    pools:
      rack: {cluster: lab, location: onprem, gpu: h100-sxm-80gb, gpus_per_node: 8, nodes: 2, node_names: [rack-0, rack-1], usd_per_gpu_hour: 1.10}
      spot: {cluster: lab, location: aws, provisioner: existing, market: spot, instance_types: [p5.48xlarge], max_gpus: 512, usd_per_gpu_hour: 3.60}
      od: {cluster: lab, location: aws, provisioner: existing, market: on-demand, instance_types: [p5.48xlarge], max_gpus: 96, usd_per_gpu_hour: 9.60}
    classes:
      urgent: {priority: 1000, max_wait: 2m, default: true}
    teams:
      storm: {quota: {h100-onprem: 4}, borrow: {h100-onprem: 0}}
      thrifty: {quota: {h100-onprem: 4}, borrow: {h100-onprem: 0}, budget: {monthly: 1760 USD}}
    burst:
      policy: {kind: constant, wait: 2m}
      order: [spot, od]
      budget: {monthly: 500000 USD}
      expected_runtime: 10m
    agent: {replay_speed: 60, interval: 300ms}
    on_destroy: remove-everything
"""
"""No job of a whole node fits its team's local GPUs, so all are in the cloud; the thrifty cannot pay for many runs."""


@dataclass
class Storm:
    """The jobs of one storm, on the storm's fleet, and what strikes them."""

    stack: Stack
    cloud: Cloud
    random: random.Random
    gang: Job
    honest: set[Job]
    deaf: set[Job]
    thrifty: set[Job]
    uids: dict[Job, str] = field(default_factory=dict)
    created: dict[Job, str] = field(default_factory=dict)
    audit_from: int = 0
    kills: int = 0

    @property
    def jobs(self) -> set[Job]:
        return self.honest | self.deaf | self.thrifty

    def begin(self) -> None:
        """Wait until every job runs, and note who they are."""
        for team in (STORM, THRIFTY):
            found = wait_for(f"the Workloads of {team}", partial(self._complete, team))
            for job, workload in found.items():
                self.uids[job] = workload["metadata"]["uid"]
                self.created[job] = workload["metadata"]["creationTimestamp"]
        wait_for("every job to run", lambda: self.running() == self.jobs, 90)

    def _complete(self, team: str) -> dict[Job, dict[str, Any]] | None:
        found = self.workloads(team)
        return found if set(found) == {job for job in self.jobs if job[0] == team} else None

    def workloads(self, *teams: str) -> dict[Job, dict[str, Any]]:
        """The Workloads, by job."""
        items = [one for team in teams or (STORM, THRIFTY) for one in self.stack.kube.list(KUEUE, "Workload", team)[0]]
        return {(one["metadata"]["namespace"], one["metadata"]["ownerReferences"][0]["name"]): one for one in items}

    def running(self) -> set[Job]:
        """The jobs whose pods are all ready, and that are not on their way."""
        return {job for job, one in self.workloads().items() if condition(one, "PodsReady") and _rests(one)}

    def resting(self) -> set[Job]:
        """The jobs that run, and of the thrifty also those that may not have another run, and wait at home."""
        waits = {job for job, one in self.workloads(THRIFTY).items() if _waits_at_home(one) and _rests(one)}
        return self.running() | waits

    def nodes_of(self, *jobs: Job) -> list[str]:
        """The nodes that these jobs have pods on, and that are not under notice, in random order."""
        found = set()
        for team in sorted({team for team, _ in jobs}):
            for pod in self.stack.kube.list("v1", "Pod", team)[0]:
                if (team, pod["metadata"]["ownerReferences"][0]["name"]) in jobs and "nodeName" in pod["spec"]:
                    found.add(str(pod["spec"]["nodeName"]))
        free = sorted(found - self.cloud.going)
        self.random.shuffle(free)
        return free

    def stops(self) -> int:
        """How often jobs were stopped so far."""
        markers = (one["metadata"].get("annotations", {}).get(EVICTION_ANNOTATION) for one in self.workloads().values())
        return sum(marker_from_json(text).attempts for text in markers if text)

    def settle(self, seconds: float = 90) -> None:
        """Let every job that is on its way arrive, while machines come and go."""
        until = time.monotonic() + seconds
        while (missing := self.jobs - self.resting()) and time.monotonic() < until:
            self.cloud.wait(0.5)
        assert not missing, f"these do not run again: {sorted(missing)}"

    def kill_agent(self) -> None:
        kill_agent(self.stack)
        self.kills += 1

    # What strikes

    def strike_one(self) -> None:
        """One node goes; everything comes to rest before the next."""
        before = self.stops()
        singles = self.honest - {self.gang}
        [node, *_] = self.nodes_of(*singles)
        self.cloud.say(node, self.random.choice((20, 30, 40)))
        until = time.monotonic() + 60
        while (self.stops() == before or self.jobs - self.resting()) and time.monotonic() < until:
            self.cloud.wait(0.3)
        assert self.stops() > before, f"nobody was stopped for {node}"

    def strike_many(self, count: int = 6) -> None:
        """So many nodes within some five seconds, each with a notice of its own length."""
        kinds = (NoticeKind.SPOT, NoticeKind.SPOT, NoticeKind.MAINTENANCE, NoticeKind.REPAIR)
        for node in self.nodes_of(*(self.jobs - {self.gang}))[:count]:
            self.cloud.say(node, self.random.choice((20, 30, 40, 60)), self.random.choice(kinds))
            self.cloud.wait(self.random.uniform(0, 1.5))

    def strike_gang(self, first: int = 4) -> None:
        """Several nodes of the gang, with notices of different lengths; then two more while it is on its way."""
        nodes = self.nodes_of(self.gang)
        for number, node in enumerate(nodes[:first]):
            self.cloud.say(node, 30 + 10 * number)
        self.cloud.wait(1.5)
        for node in nodes[first : first + 2]:
            self.cloud.say(node, 30)

    def strike_twice(self) -> None:
        """One node is told of twice: maintenance in a minute, and the end in half a minute."""
        nodes = self.nodes_of(*self.deaf)
        if not nodes:
            return
        node = nodes[0]
        self.cloud.say(node, 60, NoticeKind.MAINTENANCE)
        self.cloud.wait(2)
        self.cloud.say(node, 28)

    def strike_without_agent(self, count: int = 3) -> None:
        """Notices that come while the agent is not there to read them."""
        nodes = self.nodes_of(*(self.jobs - {self.gang}))[:count]
        self.kill_agent()
        for node in nodes:
            self.cloud.say(node, 40)
        self.cloud.wait(1)

    def threaten(self) -> None:
        """A notice that is taken back while a job that cannot answer still runs."""
        job = self.random.choice(sorted(self.deaf))
        if not (nodes := self.nodes_of(job)):
            return
        before = self.stops_of(job)
        self.cloud.say(nodes[0], 120, NoticeKind.MAINTENANCE, ends=False)
        self.cloud.wait(4)
        self.cloud.cancel(nodes[0])
        assert self.stops_of(job) == before, f"{job} was stopped though it had two minutes"

    def stops_of(self, job: Job) -> int:
        text = self.workloads()[job]["metadata"].get("annotations", {}).get(EVICTION_ANNOTATION)
        return marker_from_json(text).attempts if text else 0


def _rests(workload: dict[str, Any]) -> bool:
    text = workload["metadata"].get("annotations", {}).get(EVICTION_ANNOTATION)
    marker = marker_from_json(text) if text else None
    return workload["spec"].get("active") is not False and (
        marker is None or (marker.phase is Phase.DONE and (marker.accounted or not marker.attempts))
    )


def _waits_at_home(workload: dict[str, Any]) -> bool:
    at_home = workload["spec"]["queueName"] == workload["metadata"]["namespace"]
    return at_home and not condition(workload, "QuotaReserved")


def submit(stack: Stack, team: str, nodes: int, *, end_seconds: int = 1) -> Job:
    """Submit a job that fills so many nodes for longer than the test, and whose pods take so long to end."""
    number = stack._names[team] = stack._names.get(team, 0) + 1
    run = LONGEST_MINUTES * 60.0
    job = TraceJob(f"{team}-{number}", team, "urgent", nodes * NODE_GPUS, 0, run - 60, run - 60, run)
    manifest = job_manifest(job, stack.fleet, stack.fleet.agent.replay_speed, run_id="s")
    template = manifest["spec"]["template"]
    template["spec"]["terminationGracePeriodSeconds"] = GRACE_SECONDS
    template["metadata"]["annotations"]["gpufleet.dev/sim-checkpoint-seconds"] = str(end_seconds)
    stack.kube.create(manifest)
    return team, str(manifest["metadata"]["name"])
