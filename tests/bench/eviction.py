"""How fast a notice is acted on, beside aws-node-termination-handler v1.25.0: python tests/bench/eviction.py

Both get spot interruptions from one metadata service, amazon-ec2-metadata-mock, in turns, on one control plane. The
handler runs as its chart sets it up for IMDS, in a mount namespace of its own. Its first word to a job is the eviction of
its pod, ours is a request to save; it puts no job back in a queue. Each figure ends with its aim.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from infra.replay.tally import quantile
from tests.bench.parts import eviction
from tests.bench.parts.eviction import Found

CORDON_AIM: Final = 0.6
"""Of the handler's time."""

MEMORY_AIM_MIB: Final = 25.0


def main() -> int:
    """Measure and print; 0 when every aim is met."""
    print(f"load {os.getloadavg()[0]:.1f}")
    try:
        ours, theirs = eviction.measure()
    except eviction.MissingError as error:
        print(f"eviction: {error}")
        return 1
    for name, found in (("gpufleet", ours), ("aws-node-termination-handler", theirs)):
        show(name, found)
    met = [
        figure("node-agent-memory", ours.idle.memory_mib, MEMORY_AIM_MIB, "MiB", digits=1),
        figure("eviction-cordon-p99", ratio(ours, theirs, 0.99), CORDON_AIM, "x"),
        figure("eviction-cordon", ratio(ours, theirs, 0.5), CORDON_AIM, "x"),
    ]
    return 0 if all(met) else 1


def show(name: str, found: Found) -> None:
    """Print everything about one of them."""
    times = found.times
    print(f"{name}: {len(times.cordon)} evictions")
    columns = {"cordon": times.cordon, "first word to the job": times.signal, "requeued": times.requeue}
    for what, column in columns.items():
        quantiles = f"p50 {quantile(column, 0.5):.2f} s, p99 {quantile(column, 0.99):.2f} s" if column else "never"
        print(f"  notice to {what}: {quantiles}")
    print(
        f"  idle: {found.idle.memory_mib:.1f} MiB, {found.idle.cpu_millicores:.1f} millicores "
        f"over {eviction.IDLE_SECONDS:g} s"
    )


def ratio(ours: Found, theirs: Found, share: float) -> float:
    """How long our cordon takes, in times of theirs."""
    return quantile(ours.times.cordon, share) / quantile(theirs.times.cordon, share)


def figure(name: str, value: float, aim: float, unit: str, *, digits: int = 2) -> bool:
    """Print one figure against its aim, which is an upper bound; whether it is met."""
    print(f"{name}: {value:.{digits}f} {unit} (aim <= {aim:g} {unit}) {'ok' if value <= aim else 'short'}")
    return value <= aim


if __name__ == "__main__":
    sys.exit(main())
