"""Asks for a top-up: an entry of the ConfigMap that the agent reads, with the caller's authenticated name in it."""

from __future__ import annotations

import re
import secrets
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import typer

from infra.commands.cluster import connect, read_cluster
from infra.local.errors import LocalError
from runtime import kube
from runtime.cost import topups
from runtime.cost.ledger import MICRO_USD, TopUp
from runtime.cost.periods import day_of, month_of
from runtime.cost.scopes import FLEET, budgets, project_scope, team_scope
from runtime.errors import Forbidden, KubeError, NotFound
from runtime.kube import Resource
from stacks.labels import SYSTEM_NAMESPACE, TOP_UPS_NAME
from stacks.quantities.durations import parse_duration
from stacks.suggest import did_you_mean

_SELF_REVIEWS: Final = Resource("authentication.k8s.io/v1", "selfsubjectreviews")
_SCOPE: Final = re.compile(r"(team|project)[ /]([^\s/]+)")


class TopUpError(LocalError):
    """The top-up cannot be asked for."""


async def ask_for_top_up(stack: str, scope: str, usd: Decimal, reason: str, expires: str | None) -> TopUp:
    """Write the request; returns it.

    Raises:
        TopUpError: the scope has no budget, or the cluster does not let the caller do it.
        NotDeployedError: the cluster cannot be read.
    """
    async with connect(stack) as connection:
        cluster = await read_cluster(connection)
        known = budgets(cluster.config)
        if scope not in known:
            what = (
                "has no budget, so there is nothing to add to" if _exists(scope, cluster.config) else "does not exist"
            )
            raise TopUpError(f"{scope} {what}{did_you_mean(scope, known)}")
        now, zone = float(int(cluster.clock.now())), known[scope].time_zone
        end = month_of(now, zone).end if expires is None else moment_of(expires, now, zone, "--expires")
        if end <= now:
            raise typer.BadParameter(f"{expires} is over already; name a later day", param_hint="--expires")
        amount = usd.quantize(MICRO_USD).normalize() + 0
        made = TopUp(_new_id(now), scope, amount, reason, await _author(connection), now, end)
        try:
            topups.check(made)
        except ValueError as error:
            raise TopUpError(f"there can be no such top-up: {error}") from None
        try:
            await connection.patch_config_map(SYSTEM_NAMESPACE, TOP_UPS_NAME, {made.id: topups.to_text(made)})
        except Forbidden as error:
            raise TopUpError(
                f"you may not top up ({error}); ask for the right to patch ConfigMap {SYSTEM_NAMESPACE}/{TOP_UPS_NAME}"
            ) from None
        except NotFound:
            raise TopUpError(
                f"this cluster has no ConfigMap {SYSTEM_NAMESPACE}/{TOP_UPS_NAME}; deploy this version (make up)"
            ) from None
        except KubeError as error:
            raise TopUpError(f"the top-up was not written: {error}; ask again") from None
    return made


def scope_of(text: str) -> str:
    """Read `fleet`, `team NAME` or `team/NAME`, `project NAME` or `project/NAME`.

    Raises:
        ValueError: when it is none of them.
    """
    if text == FLEET:
        return FLEET
    match = _SCOPE.fullmatch(text.strip())
    if not match:
        raise ValueError(f'write fleet, "team NAME" or "project NAME" (got {topups.shown(text)})')
    return team_scope(match.group(2)) if match.group(1) == "team" else project_scope(match.group(2))


def moment_of(text: str, now: float | None, zone: str, option: str, *, backwards: bool = False) -> float:
    """A moment in fleet time: a length of time from now, forwards or backwards, or a day of the zone.

    A day means its start backwards, its end forwards. `now` may be None where the text is a day.

    Raises:
        typer.BadParameter: when it is neither.
    """
    try:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
            noon = datetime.fromisoformat(f"{text}T12:00:00").replace(tzinfo=UTC).timestamp()
            day = day_of(noon, zone)
            if datetime.fromtimestamp(noon, UTC).date().isoformat() != text:
                raise ValueError("is no day")
            return day.start if backwards else day.end
        length = parse_duration(text)
        if now is None or length <= timedelta(0):
            raise ValueError("must be longer than nothing")
        return now - length.total_seconds() if backwards else float(int(now + length.total_seconds()))
    except (ValueError, OverflowError) as error:
        shown = topups.shown(text)
        raise typer.BadParameter(
            f"write a day like 2026-11-30 or a length like 3d (got {shown}: {error})", param_hint=option
        ) from None


def _new_id(now: float) -> str:
    """A name that sorts by time and that two administrators never choose at once."""
    return f"{datetime.fromtimestamp(now, UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"


async def _author(connection: kube.Kube) -> str:
    body = {"apiVersion": _SELF_REVIEWS.version, "kind": "SelfSubjectReview"}
    try:
        review: Any = await connection.send("POST", _SELF_REVIEWS.path(), body=body)
        return str(review["status"]["userInfo"]["username"])
    except (KubeError, KeyError, TypeError) as error:
        raise TopUpError(
            f"the cluster does not say who you are ({error}); a top-up needs an author, and Kubernetes 1.28 or newer "
            "answers SelfSubjectReview to every authenticated user"
        ) from None


def _exists(scope: str, config: Any) -> bool:
    names = {FLEET, *map(team_scope, config.teams), *map(project_scope, config.projects)}
    return scope in names
