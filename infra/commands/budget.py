"""`gpufleet budget`: how every budget stands, changing its limits, adding to it for a while, and what was spent.

It reads with the caller's own rights and credentials. It never writes to the ledger: limits are changed in the typed
file, and a top-up is a request in a ConfigMap, which the agent records.
"""

from __future__ import annotations

import asyncio
import json
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from infra.commands.budget_file import change_limits
from infra.commands.budget_log import Event, events_of
from infra.commands.columns import ABSENT, columns
from infra.commands.ledgers import LedgerUrl, bucket_of, ledger_of_cluster, reader_of
from infra.commands.options import ClusterStack, Json, Since
from infra.commands.places import stack_files
from infra.commands.project import stack_file
from infra.commands.topping import ask_for_top_up, moment_of, scope_of
from runtime.clock import format_time
from runtime.cost import topups
from runtime.cost.budget import Standing, Summary, summary
from runtime.store import history
from stacks.agent_config import AgentConfig
from stacks.quantities import format_usd
from stacks.quantities.money import parse_usd

_NO_LIMIT: Final = "none"

app = typer.Typer(
    help=(
        "How every budget stands, changing limits, adding money for a while, and what was spent.\n\n"
        "Exit code: 0; 1 where it failed, and standard error says why."
    ),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Scope = Annotated[str, typer.Argument(metavar="SCOPE", help='`fleet`, "team NAME" or "project NAME"; team/NAME too.')]
Limit = Annotated[str | None, typer.Option(metavar="USD", help="Limit, e.g. 25000USD; `none` removes it.")]


@app.command()
def show(stack: ClusterStack = "local", ledger: LedgerUrl = None, as_json: Json = False) -> None:
    """Show every budget: limit, top-ups, spent, committed and left, today, this week and this month.

    Committed is the most that open jobs may still cost under a hard budget, else what they are expected to cost. Days,
    weeks and months are those of the budget's time zone. Exit code: 0; 1 where cluster or ledger cannot be read.
    """
    found, config = asyncio.run(_standing(stack, ledger))
    rows = [_row(scope, one.kind, one.time_zone, kind, standing) for scope, one, kind, standing in _standings(found)]
    if as_json:
        typer.echo(json.dumps({"budgets": rows}, indent=2))
        return
    cells = [_cells(scope, one.kind, one.time_zone, kind, standing) for scope, one, kind, standing in _standings(found)]
    heading = ["SCOPE", "KIND", "PERIOD", "ZONE", "LIMIT", "TOPPED-UP", "SPENT", "COMMITTED", "LEFT"]
    for line in columns(heading, cells):
        typer.echo(line)
    if config.budget is None and not any(row["limit_usd"] for row in rows):
        typer.echo("no budget limits anything; set burst.budget in the stack file", err=True)
    for row in rows:
        if row["overdrawn"]:
            typer.echo(
                f"{row['scope']}, {row['period']}: {row['overshoot_usd']} USD beyond the limit are spent or committed",
                err=True,
            )


@app.command("set")
def set_limits(
    scope: Scope,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Stack file, or name of a stack.", autocompletion=stack_files)
    ],
    monthly: Limit = None,
    weekly: Limit = None,
    daily: Limit = None,
    as_json: Json = False,
) -> None:
    """Change a budget's limits in the stack file, or in its teams file; comments and layout stay.

    The file is checked as a whole before it is written. Exit code: 0; 1 if the file is or would be wrong, and then
    nothing is written.
    """
    wanted = {"monthly": monthly, "weekly": weekly, "daily": daily}
    limits = {name: _limit(text, f"--{name}") for name, text in wanted.items() if text is not None}
    if not limits:
        raise typer.BadParameter("name a limit, for example --monthly 25000USD", param_hint="--monthly")
    path = Path(file) if Path(file).is_file() else stack_file(file, "FILE")
    change = change_limits(path, _scope(scope), limits)
    changed = change.after != change.before
    if changed:
        change.write()
    if as_json:
        typer.echo(json.dumps({"file": str(change.file), "changed": changed, "diff": "".join(change.diff())}, indent=2))
    elif changed:
        typer.echo("".join(change.diff()), nl=False)
        typer.echo(f"{change.file}: written; run `pulumi up` for it to count")
    else:
        typer.echo(f"{change.file}: says so already")


@app.command("top-up")
def top_up(
    scope: Scope,
    amount: Annotated[str, typer.Argument(metavar="USD", help="What to add, e.g. 500USD.")],
    reason: Annotated[str, typer.Option(help="Why; it stands in the ledger for ever.")],
    expires: Annotated[
        str | None,
        typer.Option(metavar="DATE|DURATION", help="Last day it counts, e.g. 2026-11-30, or 3d. Default: this month."),
    ] = None,
    stack: ClusterStack = "local",
    as_json: Json = False,
) -> None:
    """Add money to a budget's running day, week and month, until it expires.

    Later periods are as before. The agent records it in the ledger, with you as its author. For administrators, who may
    write the ConfigMap gpufleet-system/gpufleet-top-ups. Exit code: 0 once it is asked for; 1 if it cannot be.
    """
    usd = _amount(amount, "USD")
    if usd <= 0 or usd > topups.MOST_USD:
        raise typer.BadParameter(f"must be above 0 and at most {topups.MOST_USD:,} USD", param_hint="USD")
    if not reason.strip() or not reason.isprintable() or len(reason) > topups.MOST_REASON_CHARACTERS:
        most = topups.MOST_REASON_CHARACTERS
        raise typer.BadParameter(f"say why in one line of at most {most} characters", param_hint="--reason")
    made = asyncio.run(ask_for_top_up(stack, _scope(scope), usd, reason.strip(), expires))
    if as_json:
        typer.echo(json.dumps({"id": made.id} | json.loads(topups.to_text(made)), indent=2))
        return
    typer.echo(
        f"{made.id}: {format_usd(made.usd)} for {made.scope} until {format_time(made.expires_at)}, by {made.author}; "
        "it counts once the agent has recorded it (gpufleet budget show)"
    )


@app.command()
def log(
    scope: Annotated[str | None, typer.Option(help='Only what this scope pays: `fleet`, "team NAME", ….')] = None,
    since: Since = None,
    stack: ClusterStack = "local",
    ledger: LedgerUrl = None,
    as_json: Json = False,
) -> None:
    """List what was committed, what it cost in the end, and top-ups, in the order of time.

    Exit code: 0, also where there is nothing; 1 where cluster or ledger cannot be read.
    """
    found = asyncio.run(_events(stack, ledger, _scope(scope) if scope else None, since))
    if as_json:
        typer.echo(json.dumps({"events": [event.row() for event in found]}, indent=2))
        return
    cells = [[format_time(one.at), one.what, one.scopes, one.subject, format_usd(one.usd), one.note] for one in found]
    for line in columns(["TIME", "WHAT", "PAYS", "SUBJECT", "USD", "NOTE"], cells) if found else ():
        typer.echo(line)
    if not found:
        typer.echo("nothing was committed, closed or topped up", err=True)


async def _standing(stack: str, url: str | None) -> tuple[Summary, AgentConfig]:
    found = await ledger_of_cluster(stack, url)
    store = await reader_of(found)
    assert store.books is not None  # reader_of
    return summary(store.books, found.config, found.clock.now()), found.config


async def _events(stack: str, url: str | None, scope: str | None, since: str | None) -> list[Event]:
    if since is None or "-" in since:
        bucket, now = await bucket_of(stack, url), None
    else:
        found = await ledger_of_cluster(stack, url)
        bucket, now = found.bucket, found.clock.now()
    earliest = None if since is None else moment_of(since, now, "UTC", "--since", backwards=True)
    return [
        event
        for event in events_of(await history(bucket))
        if (scope is None or event.concerns(scope)) and (earliest is None or event.at >= earliest)
    ]


def _standings(found: Summary) -> list[tuple[str, Any, str, Standing]]:
    return [(scope, one, kind, standing) for scope, one in found.scopes() for kind, standing in one.standings()]


def _row(scope: str, kind: str | None, zone: str, period: str, standing: Standing) -> dict[str, Any]:
    return {
        "scope": scope,
        "kind": kind,
        "time_zone": zone,
        "period": period,
        "starts": format_time(standing.period.start),
        "ends": format_time(standing.period.end),
        "limit_usd": _plain(standing.limit),
        "topped_up_usd": _plain(standing.topped_up),
        "spent_usd": _plain(standing.spent),
        "committed_usd": _plain(standing.committed),
        "left_usd": _plain(standing.left),
        "overshoot_usd": _plain(standing.overshoot),
        "overdrawn": standing.overdrawn,
    }


def _cells(scope: str, kind: str | None, zone: str, period: str, standing: Standing) -> list[str]:
    money = [standing.limit, standing.topped_up or None, standing.spent, standing.committed, standing.left]
    return [
        scope.replace(" ", "/"),
        kind or ABSENT,
        period,
        zone,
        *(ABSENT if one is None else format_usd(one) for one in money),
    ]


def _plain(amount: Decimal | None) -> str | None:
    return None if amount is None else f"{amount.quantize(Decimal('0.01')):f}"


def _limit(text: str, option: str) -> Decimal | None:
    return None if text.strip().lower() == _NO_LIMIT else _amount(text, option)


def _amount(text: str, option: str) -> Decimal:
    try:
        return parse_usd(text)
    except ValueError as error:
        raise typer.BadParameter(f"{error} (got {topups.shown(text)})", param_hint=option) from None


def _scope(text: str) -> str:
    try:
        return scope_of(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="SCOPE") from None
