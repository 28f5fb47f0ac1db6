"""Every rule between the sections of the file finds what it should, says where, and leaves what is right alone."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from stacks.fleet import Fleet
from stacks.rules import NOTICES, RULES, WARNINGS
from tests.unit.stacks.rules.cases import NOTICE_CASES, RULE_CASES, WARNING_CASES, Case, changed


def name_of(case: Case) -> str:
    return case.rule.__name__


def problems_of(changes: dict[str, Any]) -> list[tuple[str, str]]:
    with pytest.raises(ValidationError) as caught:
        Fleet.model_validate(changed(changes))
    return [(".".join(map(str, error["loc"])), error["msg"]) for error in caught.value.errors()]


def test_every_rule_has_an_example_and_every_example_a_rule() -> None:
    assert [case.rule for case in RULE_CASES] == list(RULES)
    assert [case.rule for case in WARNING_CASES] == list(WARNINGS)
    assert [case.rule for case in NOTICE_CASES] == list(NOTICES)


def test_every_rule_says_what_it_asks_for() -> None:
    for rule in (*RULES, *WARNINGS, *NOTICES):
        assert rule.__doc__, rule.__name__


@pytest.mark.parametrize("case", RULE_CASES, ids=name_of)
def test_a_rule_finds_the_file_that_breaks_it(case: Case) -> None:
    found = problems_of(case.wrong)
    assert [path for path, reason in found if case.words in reason] == [case.path]


@pytest.mark.parametrize("case", RULE_CASES, ids=name_of)
def test_a_rule_accepts_the_file_beside_it(case: Case) -> None:
    Fleet.model_validate(changed(case.right))


@pytest.mark.parametrize("case", [*WARNING_CASES, *NOTICE_CASES], ids=name_of)
def test_a_warning_is_given_for_the_file_that_earns_it(case: Case) -> None:
    found = list(case.rule(Fleet.model_validate(changed(case.wrong))))
    assert [".".join(map(str, problem.path)) for problem in found] == [case.path]
    assert case.words in found[0].reason


@pytest.mark.parametrize("case", [*WARNING_CASES, *NOTICE_CASES], ids=name_of)
def test_a_warning_is_not_given_for_the_file_beside_it(case: Case) -> None:
    assert list(case.rule(Fleet.model_validate(changed(case.right)))) == []
