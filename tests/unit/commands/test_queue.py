from __future__ import annotations

import json
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from infra.commands.outlook import start_sentence
from runtime import kube
from runtime.kube import Resource
from runtime.simulation.told import BEYOND_HORIZON, FAR_BACK, Forecast
from tests.builders import HOUR, LOCAL, NOON, SPOT
from tests.fakes.cluster import Denied
from tests.fakes.workloads import a_workload, check, condition, reserve, verdict
from tests.unit.commands.a_fleet import a_fleet, only_in_namespace, put_forecast
from tests.unit.commands.conftest import Ended

Run = Callable[..., Ended]
VISIBLE = Resource("visibility.kueue.x-k8s.io/v1beta2", "localqueues")


def recent(name: str, minutes: float = 5, **spec: Any) -> dict[str, Any]:
    return a_workload(name, created_at=time.time() - 60 * minutes, **spec)


def rows(ended: Ended) -> dict[str, dict[str, Any]]:
    assert ended.code == 0, ended.err
    return {row["job"].partition("/")[2]: row for row in json.loads(ended.out)}


def test_a_waiting_job_says_its_place_and_when_it_starts_and_where(
    gpufleet: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = a_fleet(monkeypatch, verdict(recent("one"), "waiting"))
    put_forecast(cluster, jobs={"job-one": Forecast(1, time.time() + 720, SPOT, "waiting")})

    ended = gpufleet("queue")

    [heading, line, *_] = ended.out.splitlines()
    assert heading.split() == ["JOB", "CLASS", "GPUS", "PLACE", "WAITED", "STARTS", "STATE"]
    assert line.split()[3] == "1"
    assert line.split()[5:] == ["~12m", "queued"]
    assert f"starts in about 12m, on {SPOT}" in ended.out
    assert not ended.err


def test_the_place_is_kueues_own_where_kueue_serves_it(gpufleet: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = a_fleet(monkeypatch, recent("old", 9), recent("young", 3))
    items = [{"metadata": {"name": f"job-{name}", "namespace": "vision"}, "priority": 0} for name in ("young", "old")]
    cluster.put(VISIBLE, {"metadata": {"name": "vision", "namespace": "vision"}, "items": items})

    found = rows(gpufleet("queue", "--json"))

    assert {name: (row["place"], row["place_source"]) for name, row in found.items()} == {
        "young": (1, "kueue"),
        "old": (2, "kueue"),
    }


@pytest.mark.parametrize("items", [None, [{}], [{"metadata": None}], "text", [7]])
def test_the_place_is_by_priority_and_age_where_kueue_serves_none(
    gpufleet: Run, monkeypatch: pytest.MonkeyPatch, items: object
) -> None:
    cluster = a_fleet(monkeypatch, recent("young", 3), recent("old", 9))
    if items is not None:
        cluster.put(VISIBLE, {"metadata": {"name": "vision", "namespace": "vision"}, "items": items})

    found = rows(gpufleet("queue", "--json"))

    assert {name: (row["place"], row["place_source"]) for name, row in found.items()} == {
        "old": (1, "order"),
        "young": (2, "order"),
    }


def test_a_place_counts_the_twins_of_a_team_too(gpufleet: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    a_fleet(monkeypatch, recent("queued", 3), recent("released", 9, queue=f"vision-burst-{SPOT}"))

    found = rows(gpufleet("queue", "--json"))

    assert (found["released"]["place"], found["released"]["target"]) == (1, SPOT)
    assert found["queued"]["place"] == 2


def test_an_old_forecast_is_not_shown_and_its_age_is_said(gpufleet: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = a_fleet(monkeypatch, recent("one"))
    put_forecast(cluster, age=900, jobs={"job-one": Forecast(1, time.time() + 720, SPOT)})

    ended = gpufleet("queue")

    assert "starts in" not in ended.out
    assert "the forecast for namespace vision is 15m old; does the agent run?" in ended.said


def test_a_cluster_without_a_forecast_says_so_once(gpufleet: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    a_fleet(monkeypatch, recent("one"))

    ended = gpufleet("queue")

    assert ended.code == 0
    assert "no expected starts: the agent has written no ConfigMap gpufleet-forecast" in ended.said


def test_a_teams_user_sees_her_namespace_without_any_other_right(
    gpufleet: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = condition(reserve(recent("local"), LOCAL), "Admitted")
    cloud = condition(check(reserve(recent("cloud", queue=f"vision-burst-{SPOT}"), SPOT), "Ready"), "Admitted")
    named = recent("named", priorityClassRef={"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "p9"})
    cluster = a_fleet(monkeypatch, local, cloud, verdict(recent("waits"), "waiting"), named)
    put_forecast(cluster, jobs={"job-waits": Forecast(1, time.time() + 720, SPOT, "waiting")})
    only_in_namespace(cluster)

    found = rows(gpufleet("queue", "-n", "vision", "--json"))

    assert {name: row["state"] for name, row in found.items()} == {
        "local": "running-local",
        "cloud": "running-cloud",
        "waits": "queued",
        "named": "queued",
    }
    assert found["waits"]["start"] == f"starts in about 12m, on {SPOT}"
    assert found["waits"]["team"] == "vision"
    assert found["named"]["class"] == "p9"


def test_a_teams_user_who_asks_for_all_is_told_to_name_her_namespace(
    gpufleet: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = a_fleet(monkeypatch)
    only_in_namespace(cluster)

    ended = gpufleet("queue")

    assert ended.code == 1
    assert "a team's user names her namespace: gpufleet queue -n NAMESPACE" in ended.said


def test_whoever_may_not_even_list_workloads_is_told_which_right_it_takes(
    gpufleet: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = a_fleet(monkeypatch)

    def rule(method: str, path: str, body: Any) -> None:
        raise Denied(403, "forbidden")

    cluster.rule = rule
    ended = gpufleet("queue", "-n", "vision")

    assert ended.code == 1
    assert "you may not list the jobs of namespace vision" in ended.said
    assert "workloads.kueue.x-k8s.io" in ended.said


def test_with_a_namespace_nothing_is_read_from_other_teams(gpufleet: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = a_fleet(monkeypatch, recent("one"))

    gpufleet("queue", "-n", "vision")

    asked = {path.split("/namespaces/")[-1].split("/")[0] for _, path, _ in cluster.requests}
    assert asked == {"vision", "gpufleet-system"}


def test_explain_tells_the_outlook_and_what_is_left_of_the_budgets(
    gpufleet: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = a_fleet(monkeypatch, verdict(recent("one"), "budget"))
    put_forecast(
        cluster,
        jobs={"job-one": Forecast(1, time.time() + 9 * 24 * HOUR, SPOT, "budget", "team vision")},
        left_usd={"team vision": {"day": Decimal("12.5"), "month": Decimal(900)}},
    )

    ended = gpufleet("explain", "vision/one")

    assert f"outlook   starts in about 9d, on {SPOT}; not before the budget of team vision has room again" in ended.out
    assert "budget    team vision has left: $12.50 today, $900.00 this month" in ended.out
    assert "Job, 1 GPU" in ended.out


def test_the_agents_condition_speaks_where_the_annotation_does_not(
    gpufleet: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = condition(recent("one"), "gpufleet.dev/Burst", False)
    raw["status"]["conditions"][-1]["message"] = "waits for the night"
    a_fleet(monkeypatch, raw)

    assert rows(gpufleet("queue", "--json"))["one"]["why"] == "waits for the night"


@pytest.mark.parametrize(
    ("forecast", "sentence"),
    [
        (Forecast(1, NOON + 720, SPOT, "waiting"), f"starts in about 12m, on {SPOT}"),
        (Forecast(1, NOON + 20, SPOT, "budget"), f"starts any moment now, on {SPOT}"),
        (Forecast(1, NOON - 900, None), "starts any moment now"),
        (
            Forecast(1, NOON + 3 * HOUR, LOCAL, "window"),
            f"starts in about 3h, on {LOCAL}; when the window of its class opens",
        ),
        (
            Forecast(1, NOON + 9.5 * 24 * HOUR, SPOT, "budget", "team vision"),
            f"starts in about 9d12h, on {SPOT}; not before the budget of team vision has room again, on Dec 1",
        ),
        (Forecast(9, reason=FAR_BACK), "too far back in the queue to say when it starts"),
        (Forecast(9, reason=BEYOND_HORIZON), "no start in sight within five weeks"),
        (Forecast(9, reason="budget", scope="fleet"), "no start in sight: the budget of the fleet has no room for it"),
        (Forecast(9, reason="too-large"), "no start in sight as long as that stays so"),
    ],
)
def test_a_forecast_is_a_sentence(forecast: Forecast, sentence: str) -> None:
    assert start_sentence(forecast, NOON) == sentence


def test_an_agents_configuration_of_another_version_is_said_to_be_unreadable(
    gpufleet: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = a_fleet(monkeypatch)
    cluster.change(kube.CONFIG_MAPS, "gpufleet-router", "gpufleet-system", lambda raw: raw.update(data={"a": "b: ["}))

    assert "none that this version can read" in gpufleet("queue").said
