"""How fast a notice is acted on, and what the node agent takes: python tests/bench/eviction.py

The baseline is what aws-node-termination-handler cannot be faster than, not a measurement of it: it asks the metadata
service every 2 s (`time.Tick` in cmd/node-termination-handler.go), so a notice that begins at any moment waits for 1 s
at the median before anybody can act on it, however fast that is then. It evicts pods and puts no job back in a queue.
Each figure ends with its aim.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from infra.replay.tally import quantile
from tests.bench.parts import eviction

THEIR_LOOK_SECONDS: Final = 2.0
CORDON_AIM: Final = 0.6
"""Of the baseline."""

MEMORY_AIM_MIB: Final = 25.0


def main() -> int:
    """Measure and print; 0 when every aim is met."""
    print(f"load {os.getloadavg()[0]:.1f}")
    try:
        times, footprint = eviction.measure()
    except eviction.MissingError as error:
        print(f"eviction: {error}: who acts on it is not deployed, or does not work")
        return 1
    for what, column in (
        ("cordon", times.cordon),
        ("first word to the job", times.signal),
        ("requeued", times.requeue),
    ):
        half, most = quantile(column, 0.5), quantile(column, 0.99)
        print(f"notice to {what}: p50 {half:.2f} s, p99 {most:.2f} s ({len(column)} evictions)")
    print(
        f"a handler that looks every {THEIR_LOOK_SECONDS:g} s and then takes no time: p50 {THEIR_LOOK_SECONDS / 2:.2f} s, "
        f"p99 {0.99 * THEIR_LOOK_SECONDS:.2f} s (computed; aws-node-termination-handler itself was not run)"
    )
    print(f"idle node agent: {footprint.cpu_millicores:.1f} millicores over {eviction.IDLE_SECONDS:g} s")
    met = [
        figure("node-agent-memory", footprint.memory_mib, MEMORY_AIM_MIB, "MiB", digits=1),
        figure("eviction-cordon-p99", quantile(times.cordon, 0.99), CORDON_AIM * 0.99 * THEIR_LOOK_SECONDS, "s"),
        figure("eviction-cordon", quantile(times.cordon, 0.5), CORDON_AIM * THEIR_LOOK_SECONDS / 2, "s"),
    ]
    return 0 if all(met) else 1


def figure(name: str, value: float, aim: float, unit: str, *, digits: int = 2) -> bool:
    """Print one figure against its aim, which is an upper bound; whether it is met."""
    print(f"{name}: {value:.{digits}f} {unit} (aim {aim:.{digits}f} {unit}) {'ok' if value <= aim else 'short'}")
    return value <= aim


if __name__ == "__main__":
    sys.exit(main())
