"""How long `gpufleet check` takes on a file of 1,000 pools, as a whole process: python tests/bench/check.py

The baseline is what one would do without us: PyYAML's safe_load and the published schema, in a process of its own. It
says whether the file has the right form; ours says in addition what contradicts what, and where each mistake stands.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from stacks.load import KEY, load_file

ROOT: Final = Path(__file__).resolve().parents[2]
AIM_SECONDS: Final = 3.0
POOLS: Final = 1_000
ROUNDS: Final = 3

BASELINE: Final = """
import json, sys, yaml, jsonschema
schema = json.load(open(sys.argv[2]))
value = yaml.safe_load(open(sys.argv[1]))
sys.exit(bool(list(jsonschema.Draft202012Validator(schema).iter_errors(value))))
"""


def fleet() -> dict[str, Any]:
    """An ordinary fleet with very many racks."""
    whole = yaml.safe_load((ROOT / "stacks" / "Pulumi.local.yaml").read_text("utf-8"))
    values: dict[str, Any] = whole["config"][KEY]
    rack = {key: value for key, value in values["pools"]["rack"].items() if key != "node_names"}
    values["pools"] |= {f"rack-{number:05}": rack for number in range(POOLS)}
    return {"config": {KEY: values}}


def seconds(command: list[str]) -> float:
    """The time that a command takes.

    Raises:
        subprocess.CalledProcessError: it fails.
    """
    started = time.perf_counter()
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> int:
    """Time both, alternately; 0 when ours is within the aim."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "Pulumi.bench.yaml")
        file.write_text(yaml.safe_dump(fleet(), sort_keys=False), "utf-8")
        load_file(file)
        ours = [sys.executable, "-c", "from infra.cli import main; main()", "check", str(file)]
        prod = [*ours[:-1], "stacks/Pulumi.prod.yaml"]
        baseline = [sys.executable, "-c", BASELINE, str(file), "stacks/fleet.schema.json"]
        rounds = [(seconds(ours), seconds(baseline), seconds(prod)) for _ in range(ROUNDS)]
    mine, theirs, small = (statistics.median(column) for column in zip(*rounds, strict=True))
    print(
        f"{POOLS} pools: gpufleet check {mine:.2f} s, PyYAML and jsonschema {theirs:.2f} s; Pulumi.prod.yaml {small:.2f} s"
    )
    verdict = "ok" if mine <= AIM_SECONDS else "short"
    print(f"check-{POOLS}: {mine:.2f} s (aim {AIM_SECONDS:.2f} s) {verdict}")
    return 0 if verdict == "ok" else 1


if __name__ == "__main__":
    sys.exit(main())
