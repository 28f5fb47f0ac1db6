"""What our models, validation and components cost in a preview of 1,000 resources: python tests/bench/plan.py

Two projects are previewed in turn by the real engine: ours, with the program of infra/__main__.py and a fleet file of
many teams, and a bare one that registers the same types, names, inputs, parents and dependencies from a recorded list.
Both previews are compared before anything is timed. No API server takes part: the provider of both agrees at once.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from infra.local import toolchain
from infra.local.engine import Engine
from stacks.load import KEY

ROOT: Final = Path(__file__).resolve().parents[2]
AIM: Final = 1.10
PAIRS: Final = 3
STACK: Final = "bench"
PROGRAMS: Final = Path(__file__).with_name("programs")

TEAMS: Final = 159
"""Each brings six objects; with the admission policies, the agent and the flavors they make about a thousand."""

GPUS_PER_TEAM: Final = 8


def fleet() -> dict[str, Any]:
    """An ordinary fleet of two GPU models and three markets, with very many teams."""
    cloud = {"cluster": "lab", "location": "aws", "provisioner": "existing"}
    rack = {"cluster": "lab", "location": "onprem", "gpus_per_node": 8, "usd_per_gpu_hour": 1.1}
    share = {"quota": {"h100-onprem": GPUS_PER_TEAM}, "borrow": {"h100-onprem": 16}, "lend": {"h100-onprem": 4}}
    limits = {"weight": 2, "max_burst_gpus": 16, "budget": {"monthly": "2000 USD", "kind": "hard"}}
    return {
        "schema_version": 1,
        "organization": "acme",
        "clusters": {"lab": {"kind": "existing"}},
        "pools": {
            "rack": {**rack, "gpu": "h100-sxm-80gb", "nodes": TEAMS * GPUS_PER_TEAM // 8},
            "old-rack": {**rack, "gpu": "a100-sxm-40gb", "nodes": 4, "node_names": [f"old-{n}" for n in range(4)]},
            "burst-spot": {
                **cloud,
                "market": "spot",
                "instance_types": ["p5.48xlarge"],
                "max_gpus": 64,
                "usd_per_gpu_hour": 3.5,
            },
            "burst-od": {
                **cloud,
                "market": "on-demand",
                "region": "us-east-1",
                "instance_types": ["p5.48xlarge"],
                "max_gpus": 16,
            },
        },
        "classes": {"P0": {"priority": 1000, "max_wait": "5m"}, "P1": {"priority": 100, "default": True}},
        "teams": {f"team-{number:03}": {**share, **limits} for number in range(TEAMS)},
        "burst": {
            "policy": {"kind": "compute-wait", "wait_per_gpu_hour": "4m30s", "bounds": ["2m", "2h"]},
            "order": ["burst-spot", "burst-od"],
            "budget": {"monthly": "60000 USD", "kind": "hard", "when_exhausted": "local-only"},
        },
    }


class Cost(NamedTuple):
    """What one preview took: time on the wall, and of the processors in all its processes."""

    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Project:
    """A throw-away project with one empty stack."""

    engine: Engine

    @classmethod
    def make(cls, folder: Path, pulumi: Path, program: Path) -> Project:
        """Write the project, with the stand-in for the Kubernetes provider, and create its stack."""
        provider = folder / "provider" / "pulumi-resource-kubernetes"
        provider.parent.mkdir(parents=True)
        command = shlex.join([sys.executable, "-P", str(PROGRAMS / "provider.py")])
        provider.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        provider.chmod(0o755)
        settings = {
            "name": "gpufleet",
            "stackConfigDir": "stacks",
            "runtime": {"name": "python", "options": {"toolchain": "pip", "virtualenv": sys.prefix}},
            "plugins": {"providers": [{"name": "kubernetes", "path": str(provider.parent)}]},
        }
        (folder / "stacks").mkdir()
        (folder / "Pulumi.yaml").write_text(yaml.safe_dump(settings))
        shutil.copy(program, folder / "__main__.py")
        engine = Engine(pulumi, folder, folder / "state", Path(sys.executable))
        engine.install()
        engine.select_or_init(STACK)
        return cls(engine)

    def timed(self) -> Cost:
        """One preview, start to end."""
        start, used = time.perf_counter(), _cpu_of_children()
        result = self.engine.preview(STACK, capture=True)
        cost = Cost(time.perf_counter() - start, _cpu_of_children() - used)
        if not result.succeeded:
            raise SystemExit(f"the preview failed:\n{result.stdout}{result.stderr}")
        return cost

    def resources(self) -> list[dict[str, Any]]:
        """What the program registers, in the engine's order, without the stack itself."""
        result = self.engine.preview(STACK, as_json=True)
        preview = result.document()
        if not result.succeeded:
            said = "".join(each["message"] for each in preview.get("diagnostics", []))
            raise SystemExit(f"the preview failed:\n{said or result.stderr}")
        states = [step["newState"] for step in preview["steps"]]
        return [_record(state) for state in states if state["type"] != "pulumi:pulumi:Stack"]


def _record(state: dict[str, Any]) -> dict[str, Any]:
    inputs = dict(state.get("inputs", {}))
    is_provider = state["type"].startswith("pulumi:providers:")
    return {
        "urn": state["urn"],
        "type": state["type"],
        "name": state["urn"].rsplit("::", 1)[1],
        "custom": state["custom"],
        # The engine notes a provider's version among its inputs; a program gives it as an option.
        "version": inputs.pop("version", None) if is_provider else None,
        "inputs": inputs,
        "parent": state.get("parent"),
        "dependencies": sorted(state.get("dependencies", [])),
        # A reference is the provider's URN and its id, which a preview does not know.
        "provider": state.get("provider", "").rpartition("::")[0],
    }


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def prepare(folder: Path, pulumi: Path) -> tuple[Project, Project, int]:
    """Make both projects, see that they register the same, and return them with the number of resources."""
    ours = Project.make(folder / "ours", pulumi, ROOT / "infra" / "__main__.py")
    file = ours.engine.stack_file(STACK)
    file.write_text(file.read_text() + yaml.safe_dump({"config": {KEY: fleet()}}))
    recorded = ours.resources()
    bare = Project.make(folder / "bare", pulumi, PROGRAMS / "bare.py")
    (bare.engine.project / "resources.json").write_text(json.dumps(recorded))

    def in_order(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted(records, key=lambda record: str(record["urn"]))

    if in_order(bare.resources()) != in_order(recorded):
        raise SystemExit("the bare program does not register what ours does; the two cannot be compared")
    return ours, bare, len(recorded)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Preview of 1,000 resources, against a bare program of the same.")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="how often each of the two is measured")
    pairs = max(1, parser.parse_args().pairs)
    # Users run with compiled modules; without them an import takes three times as long.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    pulumi = toolchain.resolve(["pulumi"], console=Console(quiet=True), only_present=True).path("pulumi")
    with tempfile.TemporaryDirectory(prefix="gpufleet-bench-") as folder:
        ours, bare, count = prepare(Path(folder), pulumi)
        print(f"{count} resources, {TEAMS} teams; load {os.getloadavg()[0]:.1f}")
        print(
            f"{'pair':>4} {'ours s':>7} {'bare s':>7} {'ratio':>6} {'ours cpu s':>11} {'bare cpu s':>11} {'ratio':>6}"
        )
        taken: list[tuple[Cost, Cost]] = []
        for number in range(1, pairs + 1):
            mine, theirs = ours.timed(), bare.timed()
            taken.append((mine, theirs))
            print(
                f"{number:>4} {mine.seconds:>7.2f} {theirs.seconds:>7.2f} {mine.seconds / theirs.seconds:>6.3f} "
                f"{mine.cpu_seconds:>11.2f} {theirs.cpu_seconds:>11.2f} {mine.cpu_seconds / theirs.cpu_seconds:>6.3f}"
            )
    for whose, costs in zip(("ours", "bare"), zip(*taken, strict=True), strict=True):
        median = statistics.median(cost.seconds for cost in costs)
        print(f"{whose}: {median:.2f} s, {median / count * 1_000:.2f} ms per resource")
    ratio = statistics.median(each.seconds / other.seconds for each, other in taken)
    print(f"plan-1000: {ratio:.2f} x (aim {AIM:.2f} x) {'ok' if ratio <= AIM else 'short'}")


if __name__ == "__main__":
    main()
