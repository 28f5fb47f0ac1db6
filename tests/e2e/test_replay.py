"""Five hundred jobs, made up and from the Philly trace: nothing astray, nothing unexplained, nobody passed over.

Both come at one or two a second, a hundred times faster than to a busy cluster, and at most some five a second for a
while: what a control plane on two cores takes without falling behind. The slice of the trace is a Sunday morning
without batches of tens or hundreds at once, under which delays are the API server's and not the agent's. The speed is
that of the other tests, since a ledger belongs to one speed.
"""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from rich.console import Console

from infra.replay.client import ThreadedClient
from infra.replay.convert import convert
from infra.replay.report import lines
from infra.replay.run import replay
from infra.replay.summary import Summary
from infra.replay.synthetic import MINUTE, synthetic
from infra.replay.tally import quantile
from infra.replay.trace import TraceJob, TraceOptions, read_trace
from stacks.labels import AGENT_NAME, SYSTEM_NAMESPACE
from tests.conftest import ROOT
from tests.e2e.conftest import FLEET_FILE, Stack

PHILLY = ROOT.parent / "shared" / "data" / "philly-2017-09_10" / "philly_jobs.csv.gz"
SUNDAY = ("2017-10-08T07:41:55", "2017-10-31")
LONGEST_SECONDS = 2 * 3600.0  # the trace has jobs of weeks; cut, so that a replay ends
JOBS = 500
MOST_INVERTED = 0.01
MOST_P95_SECONDS = 3.0
TEAMS = ("vision", "nlp", "speech", "robots")


def fleet_file(nodes: int) -> str:
    """Four teams that own equal shares of the local nodes, lend them all, and may all go to the cloud."""
    names = ", ".join(f"big-{index}" for index in range(nodes))
    teams = "\n".join(f"      {team}: {{quota: {{h100-onprem: {nodes * 2}}}}}" for team in TEAMS)
    return f"""\
config:
  gpufleet:fleet:
    schema_version: 1
    organization: acme
    clusters:
      lab: {{kind: existing}}
    pools:
      big: {{cluster: lab, location: onprem, gpu: h100-sxm-80gb, gpus_per_node: 8, nodes: {nodes}, node_names: [{names}], usd_per_gpu_hour: 1.10}}
      spot: {{cluster: lab, location: aws, provisioner: existing, market: spot, instance_types: [p5.48xlarge], max_gpus: 64, usd_per_gpu_hour: 3.60}}
      od: {{cluster: lab, location: aws, provisioner: existing, market: on-demand, instance_types: [p5.48xlarge], max_gpus: 32, usd_per_gpu_hour: 9.60}}
    classes:
      P0: {{priority: 1000, max_wait: 5m}}
      P1: {{priority: 100, max_wait: 30m, default: true}}
      P2: {{priority: 10, burst: never}}
    teams:
{teams}
    burst:
      policy: {{kind: compute-wait, wait_per_gpu_hour: 4m30s, bounds: [2m, 2h]}}
      order: [spot, od]
      budget: {{monthly: 500000 USD}}
      expected_runtime: 30m
    agent: {{replay_speed: 60, interval: 300ms}}
    on_destroy: remove-everything
"""


def play(stack: Stack, jobs: Sequence[TraceJob]) -> Summary:
    async def played() -> Summary:
        async with ThreadedClient(stack.kube) as client:
            return await replay(
                client,
                stack.fleet,
                jobs,
                audit_log=stack.plane.state.audit_log,
                ledger=stack.plane.state.root / "volumes" / SYSTEM_NAMESPACE / AGENT_NAME,
                speed=stack.fleet.agent.replay_speed,
                console=Console(file=io.StringIO()),
                drain=timedelta(seconds=150),
            )

    summary = asyncio.run(played())
    sys.stdout.write("\n".join(lines(summary)) + "\n")
    return summary


def promises_hold(summary: Summary) -> None:
    exactness = summary.exactness
    assert summary.placed.total == JOBS
    assert summary.placed.cloud > 0
    assert exactness.gate.misroutes == ()
    assert exactness.gate.untold == ()
    assert summary.exact, exactness.gate
    assert exactness.inverted_share <= MOST_INVERTED
    delays = sorted(one.seconds for one in exactness.delays if one.quota_free)
    assert delays
    assert quantile(delays, 0.95) <= MOST_P95_SECONDS


@pytest.mark.long
def test_five_hundred_jobs_of_a_busy_hour_keep_every_promise(stack: Stack) -> None:
    stack.reshape(fleet_file(nodes=2))
    try:
        jobs = synthetic(stack.fleet, seed=8, length_seconds=450 * MINUTE)[:JOBS]
        promises_hold(play(stack, jobs))
    finally:
        stack.reshape(FLEET_FILE)


@pytest.mark.long
def test_five_hundred_jobs_of_the_philly_trace_keep_every_promise(stack: Stack, tmp_path: Path) -> None:
    if not PHILLY.exists():
        pytest.skip("the Philly trace does not lie beside the checkout")
    stack.reshape(fleet_file(nodes=4))
    try:
        convert(PHILLY, tmp_path / "philly.csv", "philly")
        jobs = read_trace(
            tmp_path / "philly.csv", stack.fleet, TraceOptions(auto_teams=True, limit=JOBS, window=SUNDAY)
        )
        promises_hold(play(stack, [_cut(job) for job in jobs]))
    finally:
        stack.reshape(FLEET_FILE)


def _cut(job: TraceJob) -> TraceJob:
    run = min(job.run_seconds, LONGEST_SECONDS)
    return replace(job, run_seconds=run, max_seconds=1.5 * run + 10 * MINUTE)
