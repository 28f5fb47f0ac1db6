"""How many GPUs MIG plans take, and how long they take to make: python tests/bench/mig.py

The demand is the pods of the openb cluster (Alibaba, 2023) that ask for a part of one GPU, each mapped to the smallest
profile of an H100 with that share of SMs and of memory; where the data are not beside the checkout, a synthetic demand
of the same size and shape. The baseline is first fit with the larger instances first, which is what one does by hand.
A figure of 1.00 means that no plan could use fewer GPUs.
"""

from __future__ import annotations

import csv
import gzip
import importlib
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from infra.gpus.plan import Plan, first_fit, plan
from infra.gpus.sizing import smallest_profile
from stacks.catalogue import catalogue

ROOT: Final = Path(__file__).resolve().parents[2]
OPENB: Final = ROOT.parent / "shared" / "data" / "alibaba-openb-2023"
PODS: Final = ("default", "gpushare40")
GPU: Final = catalogue().gpus["h100-sxm-80gb"]
SIX_PROFILES: Final = {"1g.10gb": 100, "1g.20gb": 40, "2g.20gb": 40, "3g.40gb": 30, "4g.40gb": 16, "7g.80gb": 10}
AIM_SECONDS: Final = 1.0
AIM_RATIO: Final = 1.0
WHOLE: Final = 1_000  # milli-GPUs

Answer = TypeVar("Answer")


def shares_of(file: Path) -> Iterator[int]:
    """Thousandths of a GPU that each pod with a part of one asks for."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            if int(row["num_gpu"]) == 1 and int(row["gpu_milli"]) < WHOLE:
                yield int(row["gpu_milli"])


def synthetic_shares(pods: int = 3_000) -> Iterator[int]:
    """The same shape by chance: a few favourite sizes, mostly small, as people ask for round parts."""
    chance = random.Random(2023)
    for _ in range(pods):
        yield min(
            WHOLE - 1, chance.choice((50, 100, 100, 200, 250, 330, 460, 500, 500, 650, 800)) + chance.randint(-20, 20)
        )


def demand_of(shares: Iterator[int]) -> dict[str, int]:
    """The smallest profile with the share of SMs and of memory that each pod asks for."""
    demand: Counter[str] = Counter()
    for milli in shares:
        share = milli / WHOLE
        assert GPU.sms is not None
        # The share is of what MIG leaves of the memory, as a pod with the whole GPU has that at most.
        memory = share * smallest_memory_of_the_whole()
        found = smallest_profile(GPU, memory, math.ceil(share * GPU.sms))
        assert found is not None
        demand[found.name] += 1
    return dict(demand)


def smallest_memory_of_the_whole() -> float:
    """MiB that one instance with the whole GPU has."""
    assert GPU.mig is not None
    return max(profile.memory_mib or 0 for profile in GPU.mig.profiles.values())


def timed(work: Callable[[], Answer]) -> tuple[Answer, float]:
    """The answer, and the seconds that it took."""
    started = time.perf_counter()
    answer = work()
    return answer, time.perf_counter() - started


def compare(name: str, demand: dict[str, int]) -> tuple[Plan, float]:
    """Print one demand planned, and by first fit."""
    found, seconds = timed(lambda: plan(GPU, demand))
    by_hand, by_hand_seconds = timed(lambda: first_fit(GPU, demand))
    rest, rest_seconds = timed(lambda: plan(GPU, demand, solver="heuristic"))
    print(
        f"{name}: {sum(demand.values()):,} instances ({', '.join(f'{count} x {one}' for one, count in demand.items())})\n"
        f"  plan {found.gpus} GPUs, {found.sm_share:.1%} of SMs, {found.stranded_units} units stranded, "
        f"{'proven' if found.optimal else 'not proven'}, {seconds:.2f} s; at least {found.lower_bound}\n"
        f"  first fit {by_hand} GPUs, {by_hand_seconds:.2f} s; without the solver {rest.gpus} GPUs, {rest_seconds:.2f} s"
    )
    return found, seconds


def main() -> int:
    """Compare and print; 0 when both aims are met."""
    importlib.import_module("highspy")  # so that no demand pays for the import
    results = [compare("six profiles", SIX_PROFILES)]
    files = [OPENB / f"openb_pod_list_{pods}.csv.gz" for pods in PODS]
    if all(file.is_file() for file in files):
        results += [compare(file.name, demand_of(shares_of(file))) for file in files]
    else:
        print(f"{OPENB} is not there; a synthetic demand of the same shape stands in")
        results.append(compare("synthetic", demand_of(synthetic_shares())))
    ratio = max(found.gpus / found.lower_bound for found, _ in results)
    slowest = max(seconds for _, seconds in results)
    met = [
        figure("mig-plan-seconds", slowest, AIM_SECONDS, " s"),
        figure("mig-plan-gpus-over-bound", ratio, AIM_RATIO, ""),
    ]
    return 0 if all(met) else 1


def figure(name: str, value: float, aim: float, unit: str) -> bool:
    """Print one figure against its aim, which is an upper bound; whether it is met."""
    print(f"{name}: {value:.2f}{unit} (aim {aim:.2f}{unit}) {'ok' if value <= aim else 'short'}")
    return value <= aim


if __name__ == "__main__":
    sys.exit(main())
