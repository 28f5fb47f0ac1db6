"""Demand from text, jobs and traces; GPUs that are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.gpus.demand import parse_demand, read_jobs, read_trace_demand
from infra.gpus.errors import DemandError
from infra.gpus.model import StandingGpu
from infra.gpus.sizing import smallest_profile, usable_mib
from infra.gpus.standing import read_standing
from infra.replay.errors import TraceError
from stacks.catalogue import catalogue
from stacks.mig import Placement

GPUS = catalogue().gpus
H100, H20 = GPUS["h100-sxm-80gb"], GPUS["h20-96gb"]


def written(folder: Path, text: str) -> Path:
    file = folder / "file"
    file.write_text(text, "utf-8")
    return file


@pytest.mark.parametrize(
    "text",
    [
        "3g.40gb=10,1g.10gb=50",
        " 1g.10gb = 50 , 3g.40gb = 10 ",
        "10x3g.40gb,50x1g.10gb",
        "nvidia.com/mig-3g.40gb=10,MIG 1g.10gb=20,1g.10gb=30",
    ],
)
def test_a_demand_is_profiles_with_counts(text: str) -> None:
    assert parse_demand(H100, text).demand == {"3g.40gb": 10, "1g.10gb": 50}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "asks for nothing"),
        (",,", "asks for nothing"),
        ("3g.40gb=0", "whole number from 1 to 100,000"),
        ("3g.40gb=-1", "whole number from 1 to 100,000"),
        ("3g.40gb=1e9", "whole number from 1 to 100,000"),
        ("3g.40gb=٣", "whole number from 1 to 100,000"),
        ("3g.40gb=99999,1g.10gb=99999", "199,998 instances; 100,000 is the most"),
        ("3g.20gb=1", r"did you mean 3g\.40gb"),
        ("1c.3g.40gb=1", "names a compute instance"),
        ("\x1b[31m=1", "not a MIG profile"),
        ("x" * 5_000, "characters are too long"),
    ],
)
def test_what_is_no_demand_is_refused(text: str, reason: str) -> None:
    with pytest.raises(DemandError, match=reason) as caught:
        parse_demand(H100, text)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("memory_gib", "sms", "name"),
    [
        (0, 0, "1g.10gb"),
        (9.7, 16, "1g.10gb"),
        (10, 0, "1g.20gb"),  # a slice of "10gb" has 9.75 GiB
        (12, 30, "2g.20gb"),
        (4, 60, "3g.40gb"),
        (30, 61, "4g.40gb"),
        (79, 132, "7g.80gb"),
        (80, 0, None),
    ],
)
def test_a_need_gets_the_smallest_profile_that_has_it(memory_gib: float, sms: int, name: str | None) -> None:
    found = smallest_profile(H100, memory_gib * 1024, sms)
    assert (found and found.name) == name


def test_memory_and_sms_that_are_not_known_are_taken_as_less_than_the_share() -> None:
    assert H20.mig is not None
    assert usable_mib(H20, H20.mig.profiles["1g.12gb"]) == int(0.91 * 12 * 1024)
    found = [smallest_profile(H20, 0, sms) for sms in (9, 10)]  # 78 SMs: a seventh is 11, of which an H100 gives 84 %
    assert [profile and profile.name for profile in found] == ["1g.12gb", "2g.24gb"]


def test_jobs_that_run_at_once_become_a_demand(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "name,memory,sms,profile,count\na,8Gi,,,10\nb,16Gi,40,,3\nc,,,2g.20gb,2\nd,79.5Gi,,,4\ne,,20,,\n,8,,,\nf,,,,\ng,,,9g.1gb,\nh,100Gi,,,\ni,,133,,\n",
    )
    found = read_jobs(H100, file)
    assert found.demand == {"1g.10gb": 10, "3g.40gb": 3, "2g.20gb": 2, "1g.20gb": 1}
    assert found.whole == 4
    assert found.report is not None
    assert (found.report.kept, found.report.dropped) == (5, 5)
    said = "\n".join(found.report.lines())
    assert "says neither memory nor sms nor profile" in said
    assert "needs more than a h100-sxm-80gb has, 80 GiB" in said
    assert "needs more than a h100-sxm-80gb has, 132 SMs" in said


def test_the_demand_of_a_trace_is_its_peak(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "submit,run,gpus,memory,team\n0,1h,1,8Gi,a\n10m,1h,1,8Gi,a\n70m,10m,1,8Gi,a\n0,5m,1,30Gi,b\n5m,5m,1,30Gi,b\n0,1h,8,,c\n",
    )
    found = read_trace_demand(H100, file)
    assert found.demand == {"1g.10gb": 2, "3g.40gb": 1}
    assert found.whole == 8


def test_a_file_without_a_usable_job_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DemandError, match="holds no usable job"):
        read_jobs(H100, written(tmp_path, "memory\nmuch\n"))
    with pytest.raises(TraceError, match="lacks the column submit"):
        read_trace_demand(H100, written(tmp_path, "memory\n8Gi\n"))


def test_gpus_that_are_there_are_read_with_their_instances(tmp_path: Path) -> None:
    file = written(tmp_path, "n/0: [3g.40gb@4, 1g.10gb@0]\nn/1: {live: [2g.20gb@0], idle: [1g.10gb@6]}\nn/2: []\n3:\n")
    first = (Placement("1g.10gb", 0, 1), Placement("3g.40gb", 4, 4))
    assert read_standing(H100, file) == [
        StandingGpu("n/0", first),
        StandingGpu("n/1", (Placement("2g.20gb", 0, 2),), (Placement("1g.10gb", 6, 1),)),
        StandingGpu("n/2"),
        StandingGpu("3"),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[a, b]", "holds no map"),
        ("", "holds no map"),
        ("a: [", "is no YAML"),
        ("a: !!python/object:os.system [x]", "is no YAML"),
        ("a: 3g.40gb@0", "instances are a list"),
        ("a: [3g.40gb]", "is no instance; write PROFILE@START"),
        ("a: [3g.40gb@1]", "3g.40gb@1 cannot be on a h100-sxm-80gb: 3g.40gb starts at 0, 4"),
        ("a: [3g.40gb@0, 1g.10gb@2]", "share memory units"),
        ("a: [3g.20gb@0]", "did you mean 3g.40gb"),
        ("a: {used: []}", "knows live and idle, not 'used'"),
        ("a: {live: [1g.10gb@0], idle: [1g.10gb@0]}", "share memory units"),
        ("[1]: []", "is no YAML|a GPU's name is text"),
        ("a: [3g.40gb@0]\na: []", "file:2: .*'a' is written twice"),
        ("1: [3g.40gb@0]\n'1': []", "'1' is written twice"),
        ("a: {live: [1g.10gb@0], live: []}", "'live' is written twice"),
        ("a: [[1g.10gb@0]]", "an instance is text, not a list"),
    ],
)
def test_what_no_node_can_have_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(DemandError, match=reason):
        read_standing(H100, written(tmp_path, text))


def test_a_list_that_holds_itself_many_times_over_costs_nothing(tmp_path: Path) -> None:
    lists = "".join(f"  - &a{at} [{', '.join([f'*a{at - 1}'] * 6)}]\n" for at in range(1, 30))
    with pytest.raises(DemandError, match="an instance is text, not a list"):
        read_standing(H100, written(tmp_path, f"g:\n  - &a0 [x]\n{lists}"))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DemandError, match="No such file"):
        read_standing(H100, tmp_path / "none.yaml")
