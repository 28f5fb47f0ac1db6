from __future__ import annotations

import random
from decimal import Decimal

from runtime.cost.ledger import NEVER_READY, Books, close
from runtime.cost.standing import summary
from runtime.simulation.spending import small_books
from stacks.agent_config import AgentConfig
from tests.builders import HOUR, NOON, a_config, a_team, an_opening, some_books

DAY = 24 * HOUR


def test_every_budget_stands_with_fewer_attempts_as_it_stood_before() -> None:
    rng = random.Random(7)
    openings = [
        an_opening(
            f"{n}",
            team=rng.choice(["vision", "nlp"]),
            project=rng.choice(["", "apollo"]),
            opened_at=NOON - rng.random() * 40 * DAY,
            max_seconds=DAY,
            fixed_usd=Decimal("1.5"),
        )
        for n in range(300)
    ]
    ended = [one for one in openings if rng.random() < 0.9]
    books = some_books(
        *openings,
        closings=tuple(
            close(one, one.opened_at, min(NOON, one.opened_at + rng.random() * DAY), "finished") for one in ended
        ),
    )
    budget = {"daily": "4000 USD", "monthly": "9000 USD", "time_zone": "Asia/Tokyo", "kind": "hard"}
    teams = {"vision": a_team("vision", budget=budget), "nlp": a_team("nlp")}
    config = a_config(budget=budget | {"time_zone": "America/New_York"}, teams=teams)

    small = small_books(books, config, NOON)

    assert len(small.openings) < 80
    for later in (0.0, HOUR, 11 * HOUR, 3 * DAY, 12 * DAY):
        assert _amounts(small, config, NOON + later) == _amounts(books, config, NOON + later)


def _amounts(books: Books, config: AgentConfig, now: float) -> list[tuple[str, str, Decimal, Decimal]]:
    """Every amount, to the millionth: the order of additions shows in later places."""
    return [
        (scope, period, round(how.spent, 6), round(how.committed, 6))
        for scope, found in summary(books, config, now).scopes()
        for period, how in found.standings()
    ]


def test_attempts_whose_pods_did_not_come_are_kept_since_their_flavor_is_left_alone() -> None:
    openings = [an_opening(f"{n}", opened_at=NOON - 60) for n in range(3)]
    closings = tuple(close(one, NOON - 60, NOON - 30, NEVER_READY) for one in openings)

    small = small_books(some_books(*openings, closings=closings), a_config(), NOON)

    assert len(small.closings) == 3
