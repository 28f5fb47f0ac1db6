from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from runtime import forecasting as forecasting_module
from runtime.clock import Clock
from runtime.cost.standing import summary
from runtime.forecasting import FORECAST_SECONDS, STALE_SECONDS, Forecasting, left_usd
from runtime.kube import CONFIG_MAPS
from runtime.simulation.told import Forecast
from stacks.labels import FORECAST_NAME
from tests.builders import NOON, a_config, a_job, a_snapshot, a_team, an_opening, some_books
from tests.fakes.cluster import Denied, FakeCluster
from tests.fakes.furniture import furnish

CONFIG = a_config()


class Stage:
    """A forecaster whose time stands still unless moved, and the forecasts it is to publish."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster, self.now, self.leading = FakeCluster(), NOON, True
        self.told: Mapping[str, Forecast] = {"job-1": Forecast(1, NOON + 60)}
        self.learned: list[Mapping[str, Forecast]] = []
        furnish(self.cluster, CONFIG)
        monkeypatch.setattr(forecasting_module, "forecast", lambda *_: self.told)
        clock = Clock(real_now=lambda: self.now)
        self.forecasting = Forecasting(self.cluster.kube(), clock, lambda: self.leading, self.learned.append)

    async def once(self, later: float = 0.0) -> int:
        """Make one forecast; returns how many ConfigMaps were written."""
        before = len(self.cluster.writes())
        self.now += later
        self.forecasting._due_at = float("-inf")
        self.forecasting.begin(a_snapshot(a_job()), CONFIG, self.now, None)
        assert self.forecasting._task is not None
        await self.forecasting._task
        return len(self.cluster.writes()) - before


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)


def test_only_what_is_new_is_written_and_what_grew_old(stage: Stage) -> None:
    async def story() -> None:
        assert await stage.once() == 2
        assert await stage.once(30) == 0
        stage.told = {"job-1": Forecast(1, NOON + 90)}
        assert await stage.once(30) == 1, "for the team whose job it is"
        assert await stage.once(STALE_SECONDS) == 2
        assert await stage.once(-3_600) == 2, "the clock was set back"
        stage.forecasting.stand_down()
        assert await stage.once() == 2, "another replica may have written something else meanwhile"
        assert len(stage.learned) == 6

    asyncio.run(story())


def test_nothing_is_written_once_the_lease_is_lost(stage: Stage) -> None:
    async def story() -> None:
        stage.leading = False
        assert await stage.once() == 0
        stage.leading = True
        assert await stage.once() == 2

    asyncio.run(story())


def test_a_configmap_that_is_missing_or_forbidden_is_complained_of_once_and_tried_again(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        stage.cluster.remove(CONFIG_MAPS, FORECAST_NAME, "nlp")
        for _ in range(3):
            await stage.once()
        assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1

        def forbid(method: str, path: str, body: Any) -> None:
            raise Denied(403)

        stage.cluster.rule = forbid
        await stage.once(STALE_SECONDS)
        stage.cluster.rule = lambda *_: None
        furnish(stage.cluster, CONFIG)
        assert await stage.once() == 2

    asyncio.run(story())


def test_one_forecast_is_under_way_at_a_time_and_none_too_often(stage: Stage) -> None:
    async def story() -> None:
        seen = a_snapshot(a_job())
        stage.forecasting.begin(seen, CONFIG, NOON, None)
        first = stage.forecasting._task
        stage.forecasting._due_at = float("-inf")
        stage.forecasting.begin(seen, CONFIG, NOON, None)
        assert stage.forecasting._task is first
        assert first is not None
        await first
        stage.forecasting._due_at = asyncio.get_running_loop().time() + FORECAST_SECONDS
        stage.forecasting.begin(seen, CONFIG, NOON, None)
        assert stage.forecasting._task is first
        await stage.forecasting.stop()

    asyncio.run(story())


def test_a_team_is_told_what_is_left_of_the_budgets_that_apply_to_it() -> None:
    config = a_config(
        budget={"daily": "10 USD", "monthly": "100 USD"},
        teams={"vision": a_team("vision", budget={"weekly": "20 USD"}), "nlp": a_team("nlp")},
        projects={
            "open": {"budget": {"daily": "4 USD"}},
            "closed": {"budget": {"daily": "5 USD"}, "teams": ["nlp"]},
        },
    )
    found = summary(some_books(an_opening()), config, NOON)
    assert left_usd("vision", config, found) == {
        "fleet": {"day": 8, "month": 98},
        "team vision": {"week": 18},
        "project open": {"day": 4},
    }
    assert left_usd("nlp", config, found).keys() == {"fleet", "project open", "project closed"}
    assert left_usd("nlp", config, None) == {}
