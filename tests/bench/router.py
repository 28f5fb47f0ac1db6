"""What the agent costs: python tests/bench/router.py

Decisions at 15,000 pending jobs against the same rule written straight down (tests/bench/decide.py has all its rows),
memory of the agent's process, and what the gate adds on the embedded control plane against the same Kueue without a
check. Each figure ends with its aim.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench import decide
from tests.bench.parts import gate, memory

PENDING: Final = 15_000
PODS: Final = 2_000
PODS_AIM_MIB: Final = 128.0
PENDING_AIM_MIB: Final = 256.0
GATE_AIM_SECONDS: Final = 1.0


def main() -> None:
    """Measure and print."""
    print(f"load {os.getloadavg()[0]:.1f}")
    snapshot, worst = decide.snapshot_of(PENDING, distinct=True), 0.0
    for scarce, means in decide.SHORT_OF.items():
        row = f"{PENDING} pending, every job of its own shape, short of {scarce}, compute-wait"
        worst = max(worst, decide.measure(row, snapshot, decide.config_of("compute-wait", means)))
    pods, pods_settled = memory.peak_mib(pending=0, running=PODS)
    print(f"memory with {PODS:,} running jobs and pods: peak {pods:.0f} MiB, settled {pods_settled:.0f} MiB")
    pending, pending_settled = memory.peak_mib(pending=PENDING, running=0)
    print(f"memory with {PENDING:,} waiting jobs: peak {pending:.0f} MiB, settled {pending_settled:.0f} MiB")
    found = gate.measure()
    print(f"gate at {gate.JOBS_PER_SECOND:g} jobs/s: p50 {found.p50_seconds:.2f} s, p99 {found.p99_seconds:.2f} s")
    for what, gated, plain in (
        ("admitted", found.gated.admitted, found.plain.admitted),
        ("started", found.gated.started, found.plain.started),
    ):
        print(f"{what}: {gated:.1f}/s through the gate, {plain:.1f}/s without a check, ratio {gated / plain:.2f}")
    figure(f"decide-{PENDING}", worst, decide.AIM_MS, "ms")
    figure(f"memory-{PODS}-pods", pods, PODS_AIM_MIB, "MiB")
    figure(f"memory-{PENDING}-workloads", pending, PENDING_AIM_MIB, "MiB")
    figure("gate-p99", found.p99_seconds, GATE_AIM_SECONDS, "s", digits=2)


def figure(name: str, value: float, aim: float, unit: str, *, digits: int = 0) -> None:
    """Print one figure against its aim, which is an upper bound."""
    print(f"{name}: {value:.{digits}f} {unit} (aim {aim:g} {unit}) {'ok' if value <= aim else 'short'}")


if __name__ == "__main__":
    main()
