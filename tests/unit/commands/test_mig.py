"""`gpufleet mig` and `gpufleet gpu` as one calls them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from infra.commands import gpu, mig
from infra.commands.mig_text import picture
from infra.gpus.captured import captured_toml
from infra.gpus.errors import CaptureError, DemandError
from infra.local.errors import LocalError
from stacks.catalogue import catalogue
from stacks.load import KEY, load_file
from stacks.mig import place
from stacks.problems import ConfigError
from tests.unit.packing.test_captured import TODAY, card

H100 = catalogue().gpus["h100-sxm-80gb"]
STACK = """\
# the fleet
config:
  gpufleet:fleet:
    schema_version: 1
    organization: example
    clusters:
      hq: {kind: existing}
    pools:
      rack: {cluster: hq, location: onprem, gpu: h100-sxm-80gb, gpus_per_node: 8, nodes: 2, usd_per_gpu_hour: 2}
      cut:
        cluster: hq
        location: onprem
        gpu: a100-sxm-40gb
        gpus_per_node: 4
        nodes: 4
        usd_per_gpu_hour: 1
        mig:  # for notebooks
          strategy: mixed
          # half and half
          layout: {"0-1": [7x1g.5gb], "2-3": [2x3g.20gb]}  # as of May
        node_names: []
      spot: {cluster: hq, location: aws, provisioner: existing, market: spot, instance_types: [p5.48xlarge], max_gpus: 8, usd_per_gpu_hour: 3}
    classes:
      P1: {priority: 100, default: true, burst: never}
    teams:
      vision: {quota: {h100-onprem: 8}}
    burst: {policy: {kind: never}, order: [spot], expected_runtime: 1h}
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(mig.app, arguments)


def refused(*arguments: str) -> str:
    ended = run(*arguments)
    assert isinstance(ended.exception, LocalError | ConfigError), ended.output
    return str(ended.exception)


def usage(*arguments: str) -> str:
    ended = run(*arguments)
    assert ended.exit_code == 2, ended.output
    return " ".join(ended.stderr.replace("│", " ").split())


@pytest.fixture
def stack(tmp_path: Path) -> Path:
    file = tmp_path / "Pulumi.test.yaml"
    file.write_text(STACK, "utf-8")
    load_file(file)
    return file


def test_a_plan_is_told_drawn_and_can_be_pasted() -> None:
    ended = run("plan", "--gpu", "h100-sxm", "--demand", "3g.40gb=9,1g.10gb=36")
    assert ended.exit_code == 0
    lines = ended.stdout.splitlines()
    assert lines[0].startswith("45 instances on 9 x h100-sxm-80gb; proven: no plan needs fewer")
    assert "9 x 3g.40gb + 4x1g.10gb" in lines
    pasted = [yaml.safe_load(line) for line in lines if line.startswith("mig:")]
    assert [one["mig"]["layout"] for one in pasted] == [
        {"0-7": ["3g.40gb", "4x1g.10gb"]},
        {"0": ["3g.40gb", "4x1g.10gb"]},
    ]
    assert "# 1 node with 8 GPUs, 7 of them whole" in lines


def test_json_says_all_that_the_text_says() -> None:
    document = json.loads(run("plan", "--gpu", "h100-sxm", "--demand", "7x1g.10gb", "--json").stdout)
    assert (document["gpus"], document["lower_bound"], document["optimal"]) == (1, 1, True)
    assert document["groups"][0]["profiles"] == {"1g.10gb": 7}
    assert document["groups"][0]["reach"] == "certain"
    assert len(document["groups"][0]["placements"]) == 7
    assert document["nodes"] == [{"count": 1, "mig": {"strategy": "mixed", "layout": {"0": ["7x1g.10gb"]}}}]


def test_live_instances_are_kept_and_what_that_takes_is_said(tmp_path: Path) -> None:
    keep = tmp_path / "keep.yaml"
    keep.write_text("n/0: [1g.10gb@5]\nn/1: []\n", "utf-8")
    ended = run("plan", "--gpu", "h100-sxm", "--demand", "4g.40gb=2,1g.10gb=2", "--keep", str(keep))
    assert ended.exit_code == 0
    assert "beside live instances: needs explicit placement, as mig-parted clears the GPU first" in ended.stdout
    assert "2 GPUs laid out anew, 0 added" in ended.stdout
    assert "(n/0)" in ended.stdout


def test_jobs_and_traces_are_demand_too(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.csv"
    jobs.write_text("memory,count\n8Gi,7\n79.5Gi,2\nx,1\n", "utf-8")
    text = run("plan", "--gpu", "h100-sxm", "--jobs", str(jobs)).stdout
    assert "3 rows read, 2 used, 1 dropped" in text
    assert "beside the plan: 2 whole GPUs for jobs that get no profile" in text
    trace = tmp_path / "trace.csv"
    trace.write_text("submit,run,memory\n0,1h,8Gi\n2h,1h,8Gi\n", "utf-8")
    assert "demand: for each profile the most" in run("plan", "--gpu", "h100-sxm", "--trace", str(trace)).stdout


def test_a_pool_is_planned_by_its_nodes(stack: Path) -> None:
    ended = run("plan", "--pool", "cut", "--file", str(stack), "--demand", "3g.20gb=8,1g.5gb=30")
    assert ended.exit_code == 0
    assert "pool cut: 4 equal nodes with this each, 8 GPUs" in ended.stdout
    assert "2 GPUs of each node stay whole" in ended.stdout
    assert yaml.safe_load(ended.stdout.splitlines()[-1])["mig"]["layout"] == {"0-1": ["3g.20gb", "4x1g.5gb"]}
    assert stack.read_text("utf-8") == STACK


def test_writing_changes_the_layout_keeps_comments_and_remembers_the_former_one(stack: Path) -> None:
    ended = run("plan", "--pool", "cut", "--file", str(stack), "--demand", "3g.20gb=8,1g.5gb=30", "--write")
    assert ended.exit_code == 0, ended.output
    text = stack.read_text("utf-8")
    for comment in ("# the fleet", "# for notebooks", "# half and half"):
        assert comment in text
    layout = yaml.safe_load(text)["config"][KEY]["pools"]["cut"]["mig"]
    assert layout == {
        "strategy": "mixed",
        "layout": {"0-1": ["3g.20gb", "4x1g.5gb"]},
        "former": {"0-1": ["7x1g.5gb"], "2-3": ["2x3g.20gb"]},
    }
    changed = [line for line in text.splitlines() if line not in STACK.splitlines()]
    assert len(changed) <= 3
    again = run("plan", "--pool", "cut", "--file", str(stack), "--demand", "3g.20gb=8,1g.5gb=30", "--write")
    assert again.stdout.splitlines()[-1].endswith("says so already")
    assert stack.read_text("utf-8") == text


def test_a_file_that_would_be_wrong_is_not_written(stack: Path) -> None:
    said = refused("plan", "--pool", "rack", "--file", str(stack), "--demand", "1g.10gb=14", "--write")
    assert "no such flavor" in said  # the team's quota is in whole GPUs
    assert stack.read_text("utf-8") == STACK


TWIN = "{cluster: hq, location: onprem, gpu: a100-sxm-40gb, gpus_per_node: 4, nodes: 1, usd_per_gpu_hour: 1, mig: *it}"


@pytest.mark.parametrize(
    ("anchored", "twin", "said"),
    [
        ("      cut: &it", "*it", "cut is shared with other places"),
        ("        mig: &it", TWIN, "mig: is shared with other places"),
    ],
)
def test_what_another_pool_shares_is_not_written(stack: Path, anchored: str, twin: str, said: str) -> None:
    text = STACK.replace(anchored.removesuffix(" &it"), anchored).replace(
        "      spot:", f"      twin: {twin}\n      spot:"
    )
    stack.write_text(text, "utf-8")
    load_file(stack)
    assert said in refused("plan", "--pool", "cut", "--file", str(stack), "--demand", "3g.20gb=8", "--write")
    assert stack.read_text("utf-8") == text


def test_a_pool_without_mig_gets_it(stack: Path) -> None:
    stack.write_text(STACK.replace("h100-onprem: 8", "a100-40gb-mig-onprem: 8"), "utf-8")
    ended = run("plan", "--pool", "rack", "--file", str(stack), "--demand", "1g.10gb=14", "--write", "--json")
    assert ended.exit_code == 0, ended.output
    assert json.loads(ended.stdout)["written"] is True
    mig_of_pool = yaml.safe_load(stack.read_text("utf-8"))["config"][KEY]["pools"]["rack"]["mig"]
    assert mig_of_pool == {"strategy": "mixed", "layout": {"0": ["7x1g.10gb"]}}


def test_what_a_pool_cannot_have_is_refused(stack: Path) -> None:
    small = refused("plan", "--pool", "cut", "--file", str(stack), "--demand", "7g.40gb=100")
    assert "the pool is too small: 4 equal nodes need 25 GPUs each and have 4; 25 nodes would do" in small
    assert "did you mean cut?" in refused("plan", "--pool", "cute", "--file", str(stack), "--demand", "1g.5gb=1")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["plan", "--gpu", "h100-sxm"], "exactly one of --demand, --jobs and --trace"),
        (["plan", "--demand", "1g.10gb=1"], "name the GPU model"),
        (["plan", "--gpu", "h100", "--demand", "1g.10gb=1"], "can be any of"),
        (["plan", "--gpu", "h100-sxm", "--demand", "1g.10gb=1", "--write"], "add --pool NAME"),
        (["plan", "--pool", "x", "--demand", "1g.10gb=1", "--leave-live"], "a pool's nodes are equal"),
        (["explain", "1g.10gb"], "name the GPU model"),
    ],
)
def test_a_wrong_call_is_wrong_usage(arguments: Sequence[str], said: str) -> None:
    assert said in usage(*arguments)


def test_a_model_without_mig_is_refused() -> None:
    assert refused("plan", "--gpu", "l4", "--demand", "1g.5gb=1").startswith("l4-24gb has no MIG")


def test_explain_says_what_a_layout_strands_and_how_it_comes_about() -> None:
    text = run("explain", "7x1g.10gb", "--gpu", "h100-sxm").stdout
    assert "exposes 112 of 132 SMs, 85%" in text
    assert "exposes 7 of 8 memory units, strands 1" in text
    assert "whatever starts the driver chooses" in text
    hard = run("explain", "6x1g.10gb,1g.20gb", "--gpu", "h100-sxm").stdout
    assert "needs explicit placement" in hard
    more = run("explain", "3g.40gb + 2g.20gb", "--gpu", "h100-sxm").stdout
    assert "holds the same and more: 3g.40gb + 2g.20gb + 2x1g.10gb (94%)" in more
    placed = run("explain", "1g.10gb@1,1g.10gb@5", "--gpu", "h100-sxm", "--json").stdout
    assert json.loads(placed)["room_for"] == ["1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb"]


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        ("3g.40gb,4g.40gb,1g.10gb", "illegal: 1g.10gb does not fit on one h100-sxm-80gb beside 3g.40gb, 4g.40gb"),
        ("3g.20gb", "did you mean 3g.40gb?"),
        ("8x1g.10gb", "8 x 1g.10gb on one h100-sxm-80gb; it takes at most 7"),
        ("2x1g.10gb+me", "it takes at most 1"),
        ("3g.40gb@2", "3g.40gb starts at 0, 4"),
        ("3g.40gb@0,1g.10gb", "gives some starts and not others"),
        ("", "names no profile"),
        ("what", "not a MIG profile"),
        ("1g.10gb@99", "cannot be on a h100-sxm-80gb"),
    ],
)
def test_explain_says_why_a_layout_is_illegal(layout: str, said: str) -> None:
    assert said in refused("explain", layout, "--gpu", "h100-sxm")
    ended = run("explain", layout, "--gpu", "h100-sxm", "--json")
    assert ended.exit_code == 1
    assert said in json.loads(ended.stdout)["reason"]


@pytest.mark.parametrize("model", [gpu for gpu in catalogue().gpus.values() if gpu.mig], ids=lambda model: model.id)
def test_a_picture_is_as_wide_as_the_gpu(model: object) -> None:
    from stacks.catalogue import GpuModel

    assert isinstance(model, GpuModel)
    assert model.mig is not None
    for name in model.mig.profiles:
        assert len(picture(model, place(model, [name]))) == 72


def test_captured_files_are_compared_with_the_catalogue(tmp_path: Path) -> None:
    file = tmp_path / "card.toml"
    file.write_text(captured_toml([(H100.id, card(H100))], TODAY), "utf-8")
    same = CliRunner().invoke(gpu.app, ["diff", str(file)])
    assert (same.exit_code, same.stdout) == (0, "the catalogue agrees with h100-sxm-80gb\n")
    file.write_text(file.read_text("utf-8").replace("sms = 60", "sms = 42"), "utf-8")
    other = CliRunner().invoke(gpu.app, ["diff", str(file), "--json"])
    assert other.exit_code == 1
    [difference] = json.loads(other.stdout)["differences"]
    assert difference == {"model": H100.id, "what": "3g.40gb sms", "catalogue": "60", "card": "42"}


class FakeReader:
    """A node whose cards are as the catalogue says."""

    closed = False

    def close(self) -> None:
        self.closed = True


def test_cards_are_captured_into_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "Nvml", FakeReader)
    monkeypatch.setattr(gpu, "read_cards", lambda reader: (card(H100),))
    file = tmp_path / "card.toml"
    ended = CliRunner().invoke(gpu.app, ["capture", "--output", str(file)])
    assert (ended.exit_code, ended.stderr) == (0, f"wrote {file}: h100-sxm-80gb\n")
    assert CliRunner().invoke(gpu.app, ["diff", str(file)]).exit_code == 0
    assert CliRunner().invoke(gpu.app, ["diff"]).exit_code == 0
    printed = CliRunner().invoke(gpu.app, ["capture", "--gpu", "h100-96gb"])
    assert "[types.h100-96gb]" in printed.stdout


def test_a_node_without_cards_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "Nvml", FakeReader)
    monkeypatch.setattr(gpu, "read_cards", lambda reader: ())
    ended = CliRunner().invoke(gpu.app, ["capture"])
    assert isinstance(ended.exception, CaptureError)
    assert "no card of this node has MIG" in str(ended.exception)
    assert issubclass(DemandError, LocalError)
