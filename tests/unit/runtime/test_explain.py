from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.routing.decide import decide
from runtime.routing.explain import LONGEST_JSON_BYTES, RecordedVerdict, sentence, verdict_from_json, verdict_to_json
from runtime.routing.verdict import Code, Facts, Verdict
from tests.builders import HOUR, NOON, a_config, a_job, a_job_at_the_gate, a_snapshot, a_team

codes = st.sampled_from(list(Code))
facts = st.dictionaries(
    st.sampled_from(["gpus", "waited_s", "limit_usd", "earliest_at", "cause", "period", "scope", "limit_source"])
    | st.text(max_size=30),
    st.text() | st.integers() | st.floats(),
)


def test_a_waiting_job_reads_how_long_it_has_waited_and_until_when() -> None:
    config = a_config(policy={"kind": "compute-wait", "wait_per_gpu_hour": "5m", "bounds": ["2m", "2h"]})
    job = a_job(gpus=4, expected_seconds=2 * HOUR, max_seconds=None, created_at=NOON - 720)
    hold = decide(a_snapshot(job), config, NOON, "d-1").holds[0]
    assert sentence(hold.verdict) == (
        "waits for local GPUs, then may go to the cloud: has waited 12m of at most 40m (compute-wait: 4 GPUs x 2h expected from its annotation)"
    )


def test_a_job_beyond_the_budget_reads_what_it_needs_and_what_is_left() -> None:
    config = a_config(teams={"vision": a_team("vision", budget={"monthly": "1 USD"})})
    hold = decide(a_snapshot(a_job()), config, NOON, "d-1").holds[0]
    assert sentence(hold.verdict) == (
        "may go to the cloud, but would break the budget of the team vision: it needs up to $2.00 and $1.00 of $1.00 "
        "is left for this month"
    )


def test_a_cleared_job_reads_its_flavor_its_price_and_what_is_committed() -> None:
    clear = decide(a_snapshot(a_job_at_the_gate(gpus=4)), a_config(), NOON, "d-1").clears[0]
    assert sentence(clear.verdict) == (
        "runs in the cloud: 4 GPUs of h100-spot at $2.00 per GPU-hour; $8.00 committed for 1h; waited 1h of 30m; "
        "est. $8.00"
    )


def test_a_recalled_job_reads_why_it_goes_back() -> None:
    recall = decide(a_snapshot(a_job_at_the_gate(job_class="p2")), a_config(), NOON, "d-1").recalls[0]
    assert sentence(recall.verdict) == (
        "goes back to its team's queue: it stays local: class p2 never goes to the cloud"
    )


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (Verdict(Code.TOO_LARGE, {"gpus": 1, "largest_gpus": 0}), "it asks for 1 GPU, and the largest"),
        (Verdict(Code.CLOUD_FULL, {"gpus": 8, "free_gpus": 6}), "no cloud flavor has 8 GPUs free (the most free is 6"),
        (
            Verdict(Code.TEAM_LIMIT, {"team": "nlp", "gpus": 8, "held_gpus": 12, "limit_gpus": 16}),
            "team nlp holds 12 GPUs there of at most 16 GPUs, and the job needs 8 GPUs",
        ),
        (Verdict(Code.NO_RUNTIME_LIMIT, {}), "kueue.x-k8s.io/max-exec-time-seconds"),
        (Verdict(Code.LEDGER_DOWN, {}), "no money may be spent"),
        (
            Verdict(Code.RELEASED, {"waited_s": 90_061, "limit_s": 59, "limit_source": "constant"}),
            "1d1h1m of at most 59s",
        ),
        (Verdict(Code.RECALLED, {"cause": "attempt-closed"}), "the next one is decided anew"),
        (Verdict(Code.RECALLED, {}), "the cause was not recorded"),
        (Verdict(Code.RECALLED, {"cause": "recalled"}), "goes back to its team's queue: recalled"),
        (Verdict(Code.WAITING, {"waited_s": "long", "limit_s": 1e300}), "has waited an unknown time of at most"),
    ],
)
def test_every_sentence_carries_its_numbers_with_units(verdict: Verdict, said: str) -> None:
    assert said in sentence(verdict)


@settings(max_examples=100)
@given(codes, facts)
def test_any_facts_give_a_sentence_and_a_short_annotation_that_keeps_the_code(code: Code, facts: Facts) -> None:
    verdict = Verdict(code, facts)
    assert sentence(verdict)
    text = verdict_to_json(verdict, "d" * 100, NOON)
    assert len(text.encode()) <= LONGEST_JSON_BYTES
    recorded = verdict_from_json(text)
    assert recorded is not None
    assert (recorded.verdict.code, recorded.at) == (code, NOON)
    assert recorded.verdict.facts.items() <= facts.items()


def test_a_verdict_reads_back_as_it_was_written() -> None:
    verdict = Verdict(Code.BUDGET, {"scope": "fleet", "left_usd": 1.5, "gpus": 4})
    assert verdict_from_json(verdict_to_json(verdict, "d-1", NOON)) == RecordedVerdict(verdict, "d-1", NOON)


def test_a_sentence_is_the_same_after_writing_and_reading() -> None:
    hold = decide(a_snapshot(a_job(created_at=NOON - 10)), a_config(), NOON, "d-1").holds[0]
    recorded = verdict_from_json(verdict_to_json(hold.verdict, "d-1", NOON))
    assert recorded is not None
    assert sentence(recorded.verdict) == sentence(hold.verdict)


def test_facts_that_do_not_fit_are_dropped_the_longest_first() -> None:
    verdict = Verdict(Code.WAITING, {"limit_source": "x" * 2_000, "waited_s": 5})
    recorded = verdict_from_json(verdict_to_json(verdict, "d-1", NOON))
    assert recorded is not None
    assert recorded.verdict.facts == {"waited_s": 5}


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "hello",
        "[]",
        "null",
        "{}",
        '{"code":"sideways","facts":{},"decision":"d","at":1}',
        '{"code":["waiting"],"facts":{},"decision":"d","at":1}',
        '{"code":"waiting","facts":[],"decision":"d","at":1}',
        '{"code":"waiting","facts":{},"decision":7,"at":1}',
        '{"code":"waiting","facts":{},"decision":"d","at":"now"}',
        '{"code":"waiting","facts":{},"decision":"d","at":NaN}',
        '{"code":"waiting","facts":{},"decision":"d","at":true}',
        "[" * 1_000,
        '{"code":"waiting"' + " " * 2_000 + "}",
    ],
)
def test_foreign_text_is_no_verdict(text: str | None) -> None:
    assert verdict_from_json(text) is None


def test_facts_that_are_no_plain_values_are_passed_over() -> None:
    text = json.dumps({"code": "waiting", "facts": {"a": {}, "b": None, "c": 1}, "decision": "d", "at": 1})
    recorded = verdict_from_json(text)
    assert recorded is not None
    assert recorded.verdict.facts == {"c": 1}
