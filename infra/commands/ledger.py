"""`gpufleet ledger`: check the whole ledger, pack its old days, and write it out for other programs."""

from __future__ import annotations

import asyncio
import csv
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Any, Final, Literal

import typer

from infra.commands.ledgers import LedgerError, LedgerUrl, bucket_of, ledger_of_cluster
from infra.commands.options import ClusterStack, Json
from runtime.clock import Clock
from runtime.cost.entries import loss_to_dict, opening_to_dict, top_up_to_dict
from runtime.cost.ledger import Closing, Opening
from runtime.store import Bucket, Compactor, Report, history, read_owner, verify
from runtime.store.walk import History

_ALL_DAYS: Final = 1_000_000

app = typer.Typer(
    help=(
        "Check the whole ledger, pack its old days, and write it out for other programs.\n\n"
        "Exit code: 0; 1 where something failed or is wrong, and standard error says what."
    ),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command("verify")
def verify_ledger(stack: ClusterStack = "local", ledger: LedgerUrl = None, as_json: Json = False) -> None:
    """Check every entry: that it can be read, stands where it belongs, and follows from the others.

    It changes nothing. Exit code: 0 where all is right; 1 with what is wrong and how to mend it.
    """
    report = asyncio.run(_verify(stack, ledger))
    if as_json:
        counts = asdict(report) | {"ok": not report.findings, "open_attempts": report.open_attempts}
        typer.echo(json.dumps(counts, indent=2))
    else:
        for finding in report.findings:
            typer.echo(f"{finding.path}: {finding.what}; {finding.mend}", err=True)
        typer.echo(_counted(report))
    raise typer.Exit(1 if report.findings else 0)


@app.command()
def compact(stack: ClusterStack = "local", ledger: LedgerUrl = None, as_json: Json = False) -> None:
    """Pack every day that has been over for two days and has no open attempt; the agent does one at a time by itself.

    Losses of a day are packed apart from its attempts.

    It needs the right to write and delete objects, and may run beside an agent. Exit code: 0; 1 if the store fails on
    the way, which loses nothing.
    """
    days = asyncio.run(_compact(stack, ledger))
    if as_json:
        typer.echo(json.dumps({"packed": list(days)}, indent=2))
    else:
        typer.echo(
            f"packed {len(days):,} day{'' if len(days) == 1 else 's'}: {', '.join(days)}" if days else "nothing to pack"
        )


@app.command()
def export(
    form: Annotated[
        Literal["jsonl", "csv"],
        typer.Option("--format", help="jsonl: attempts, top-ups and losses; csv: attempts alone."),
    ] = "jsonl",
    stack: ClusterStack = "local",
    ledger: LedgerUrl = None,
) -> None:
    """Write every attempt to standard output, one to a line: what it committed, and what it cost once it is over.

    As JSON lines also every top-up, and every loss: the work that went with the nodes of an evicted job. Times are
    seconds of fleet time since 1970, amounts are text in USD. Exit code: 0; 1 where something could not be read and is
    left out.
    """
    found = asyncio.run(_history(stack, ledger))
    rows = [_attempt(opening, closing) for opening, closing in _in_order(found)]
    if form == "csv":
        writer = csv.DictWriter(sys.stdout, fieldnames=list(_COLUMNS), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    else:
        for row in rows:
            typer.echo(json.dumps({"kind": "attempt"} | row))
        for top_up in sorted(found.top_ups.values(), key=lambda one: (one.granted_at, one.id)):
            typer.echo(json.dumps({"kind": "top-up"} | top_up_to_dict(top_up)))
        for loss in sorted(found.losses.values(), key=lambda one: (one.stopped_at, one.workload_uid, one.number)):
            typer.echo(json.dumps(loss_to_dict(loss) | {"kind": "loss", "notice_kind": loss.kind}))
    for path, reason in sorted(found.unread.items()):
        typer.echo(f"left out: {path}: {reason}", err=True)
    raise typer.Exit(1 if found.unread else 0)


_COLUMNS: Final = (
    "workload_uid",
    "reserved_at",
    "namespace",
    "workload",
    "job",
    "team",
    "project",
    "job_class",
    "flavor",
    "gpus",
    "usd_per_gpu_hour",
    "max_seconds",
    "expected_seconds",
    "hard",
    "fixed_usd",
    "committed_usd",
    "opened_at",
    "started_at",
    "ended_at",
    "usd",
    "reason",
    "decision_id",
)


def _attempt(opening: Opening, closing: Closing | None) -> dict[str, Any]:
    row = opening_to_dict(opening)
    if closing is not None:
        row |= {
            "started_at": closing.started_at,
            "ended_at": closing.ended_at,
            "usd": f"{closing.usd:f}",
            "reason": closing.reason,
        }
    return {name: row.get(name) for name in _COLUMNS}


def _in_order(found: History) -> Iterator[tuple[Opening, Closing | None]]:
    def order(pair: tuple[Opening, Closing | None]) -> tuple[float, str, int]:
        return pair[0].opened_at, pair[0].attempt.workload_uid, pair[0].attempt.reserved_at

    yield from sorted(found.attempts.values(), key=order)


def _counted(report: Report) -> str:
    wrong = len(report.findings)
    verdict = f"{wrong:,} found wrong" if wrong else "all is right"
    owner = report.owner.cluster if report.owner else "none"
    return (
        f"{report.openings:,} attempts ({report.open_attempts:,} open), {report.top_ups:,} top-ups, "
        f"{report.losses:,} losses, {report.day_files:,} packed days, {report.single_entries:,} single entries; "
        f"owner: {owner}; {verdict}"
    )


async def _verify(stack: str, url: str | None) -> Report:
    return await verify(await bucket_of(stack, url))


async def _history(stack: str, url: str | None) -> History:
    return await history(await bucket_of(stack, url))


async def _compact(stack: str, url: str | None) -> tuple[str, ...]:
    if url is None:
        found = await ledger_of_cluster(stack, None)
        bucket, clock = found.bucket, found.clock
    else:
        bucket = await bucket_of(stack, url)
        clock = await _own_clock(bucket)
    return await Compactor(bucket, most_reads=None).run(clock.now(), _ALL_DAYS)


async def _own_clock(bucket: Bucket) -> Clock:
    """Real time, which is the ledger's unless it is a replay's."""
    owner = await read_owner(bucket)
    if owner is not None and owner.replay_speed != 1:
        raise LedgerError("this ledger is a replay's; leave --ledger out, so that the clock of its stack is read")
    return Clock()
