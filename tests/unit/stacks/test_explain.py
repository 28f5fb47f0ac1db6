"""One mistake is one message, at its place, and never shows a secret."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import pytest
from pydantic import Field
from pydantic_core import core_schema

from stacks.fleet import Fleet
from stacks.load import ConfigError, Problem, load_object, load_text
from stacks.model import Model
from stacks.problems import Place, printable
from stacks.reading.echo import looks_secret, masked, shown, with_value, with_value_once
from stacks.reading.messages import BAD_VALUE, WRONG_TYPE, unknown_setting
from stacks.reading.stackfile import find
from stacks.reading.trail import follow
from stacks.suggest import did_you_mean

GOOD = (Path(__file__).parents[3] / "stacks" / "Pulumi.local.yaml").read_text()


def only_problem(old: str, new: str) -> Problem:
    assert old in GOOD
    with pytest.raises(ConfigError) as caught:
        load_text(GOOD.replace(old, new, 1), "f.yaml")
    [problem] = caught.value.problems
    return problem


@pytest.mark.parametrize(
    ("cluster", "path", "reason"),
    [
        ("{knd: existing}", "knd", "is not a known setting; did you mean kind?"),
        ("{}", "", "needs kind, one of existing"),
        ("{kind: exsting}", "kind", "did you mean existing?"),
        ("existing", "", "must be a mapping of settings, for example {kind: …} (got 'existing')"),
        ("{kind: existing, kubeconfig: {secert: x}}", "kubeconfig.secert", "did you mean secret?"),
        ("{kind: existing, kubeconfig: {context: 5}}", "kubeconfig.context", "must be text"),
        ("{kind: existing, kubeconfig: {context: a, colour: b}}", "kubeconfig.colour", "is not a known setting"),
        ("{kind: existing, kubeconfig: {contxt: a}}", "kubeconfig.contxt", "did you mean context?"),
        ("{kind: existing, kubeconfig: {token: a}}", "kubeconfig.token", "known: secret, context"),
        (
            "{kind: existing, kubeconfig: {secret: a, context: b}}",
            "kubeconfig",
            "give either secret or context, not both",
        ),
        ("{kind: existing, kubeconfig: {}}", "kubeconfig", "needs secret or context"),
        ("{kind: existing, kubeconfig: x}", "kubeconfig", "{secret: …} or {context: …} (got 'x')"),
        ("{kind: existing, kubeconfig: x}", "kubeconfig", "must be a mapping of settings, for example {secret: …}"),
        ("{kind: existing, kubeconfig: []}", "kubeconfig", "must be a mapping of settings, for example {secret: …}"),
        ("{kind: existing, existing: 1}", "existing", "is not a known setting"),
        ("{kind: existing, KubeconfigSecret: 1}", "KubeconfigSecret", "is not a known setting"),
    ],
)
def test_of_a_union_only_the_branch_that_was_meant_is_told(cluster: str, path: str, reason: str) -> None:
    problem = only_problem("{kind: existing}", cluster)
    assert problem.path == f"clusters.lab.{path}".strip(".")
    assert reason in problem.message


def test_a_misspelt_key_is_not_also_missing_under_its_right_name() -> None:
    problem = only_problem("nodes: 2,", "nodez: 2,")
    assert (problem.path, problem.code) == ("pools.rack.nodez", "unknown-setting")


def test_a_missing_setting_stands_at_its_section() -> None:
    problem = only_problem("nodes: 2,", "")
    assert (problem.path, problem.code, problem.line) == ("pools.rack.nodes", "missing-setting", 11)


@pytest.mark.parametrize("key", ["password", "api_token", "apiKey", "psk", "SECRET", "private-key", "db.passwd"])
def test_values_of_secret_keys_are_never_shown(key: str) -> None:
    assert looks_secret((key,))
    problem = only_problem("{kind: existing}", f"{{kind: existing, {key}: hunter2}}")
    assert "hunter2" not in str(problem)


def test_a_wrong_value_below_a_secret_key_is_not_shown() -> None:
    problem = only_problem("{kind: existing}", "{kind: existing, kubeconfig: {secret: 271828}}")
    assert "(value not shown)" in problem.message
    assert "271828" not in str(problem)


@pytest.mark.parametrize("key", ["monkey", "tokenizer", "compass", "keyboard", "nodes"])
def test_keys_that_only_contain_such_a_word_are_not_secret(key: str) -> None:
    assert not looks_secret((key, 5))


def test_a_value_cannot_speak_to_the_terminal_or_fill_it() -> None:
    problem = only_problem("organization: acme", 'organization: "\\e[31m\\n\\u202e' + "A" * 5_000 + '"')
    assert str(problem).isprintable()
    assert len(str(problem)) < 700
    assert printable("a\nb\x1b", 80) == "a\\nb\\x1b"
    assert Place("f").problem("rule", "x", ("a\n" + "k" * 500,)).path.startswith("a\\nkkk")


@pytest.mark.parametrize(
    "url", ["s3://me:hunter2@b", "https://hunter2@b/c?d", "s3://me:hun/ter@2hunter2@b", "say 's3://:hunter2@b'"]
)
def test_a_password_in_a_url_is_not_shown_wherever_it_stands(url: str) -> None:
    assert "hunter2" not in masked(url)
    assert "hunter2" not in shown(url)
    assert "hunter2" not in with_value_once(f"{url} is wrong", 5)
    problem = only_problem("organization: acme", f'organization: "{url}"')
    assert "hunter2" not in str(problem)
    assert "…@b" in problem.message


@pytest.mark.parametrize(
    ("reason", "value", "message"),
    [
        ("is wrong", "x", "is wrong (got 'x')"),
        ("is wrong (a to z)", "x", "is wrong (a to z; got 'x')"),
        ("no such pool; did you mean spot?", "spto", "no such pool (got 'spto'; did you mean spot?)"),
        ("must be a list", {}, "must be a list (got a mapping)"),
        ("is wrong", 60.0, "is wrong (got 60)"),
        ("is wrong", 1e300, "is wrong (got 1e+300)"),
        ("is wrong", None, "is wrong (got null)"),
        ("is wrong", "\ud800", r"is wrong (got '\ud800')"),
    ],
)
def test_a_reason_is_followed_by_what_the_file_has(reason: str, value: object, message: str) -> None:
    assert with_value(reason, value) == message


@pytest.mark.parametrize(
    ("reason", "value", "message"),
    [
        ("a100 can be several; write which", "a100", "a100 can be several; write which"),
        ("9 is more than 8", 9, "9 is more than 8"),
        ("write 20%", 20, "write 20% (got 20)"),
        ("'' is no day", "", "'' is no day"),
        ("is 1.5", 1, "is 1.5 (got 1)"),
        ("is too long", [1], "is too long"),
    ],
)
def test_a_value_that_the_reason_names_is_not_said_twice(reason: str, value: object, message: str) -> None:
    assert with_value_once(reason, value) == message


def test_of_a_secret_neither_reason_nor_value_is_shown() -> None:
    assert with_value("hunter2 is short", "hunter2", secret=True) == "… is short (value not shown)"
    assert with_value_once("hunter2 is short", "hunter2", secret=True) == "… is short"
    assert with_value_once("no name; try hunter-2", "Hunter 2", secret=True) == "no name"
    assert with_value("must be text", ["hunter2"], secret=True) == "must be text (got a list)"
    assert with_value("must be text", "e", secret=True) == "must be text (value not shown)", "no word loses its letters"


def test_a_short_list_of_names_is_given_in_its_order_and_a_long_one_not_at_all() -> None:
    assert did_you_mean("x", ["Mon", "Tue", "Fri"]) == "; known: Mon, Tue, Fri"
    assert did_you_mean("x", {"b", "a"}) == "; known: a, b"
    assert did_you_mean("x", map(str, range(100, 200))) == ""
    assert did_you_mean("1999", map(str, range(1000, 2000))) == "; did you mean 1999?"
    assert did_you_mean("x", []) == "; none is defined"


def test_a_letter_that_only_looks_alike_is_named() -> None:
    assert unknown_setting("оrganization", ("organization",), ()) == (
        "is not a known setting; did you mean organization? (the key has the letter U+043E)"
    )


@pytest.mark.parametrize(
    ("old", "new", "path", "reason"),
    [
        ("nodes: 2,", "nodes: 0,", "pools.rack.nodes", "must be 1 or more (got 0)"),
        ("bounds: [2m, 2h]", "bounds: [5, 2h]", "burst.policy.bounds.0", "write a duration with its unit"),
        ("bounds: [2m, 2h]", "bounds: [2m, 3m, 2h]", "burst.policy.bounds", "may have at most 2 entries, has 3"),
        ("organization: acme", "organization: [acme]", "organization", "must be text (got a list)"),
        ("  rack:", "  spare: h100\n      rack:", "pools.spare", "for example {location: …} (got 'h100')"),
        ("  vision: {", "  other: 5\n      vision: {", "teams.other", "for example {quota: …} (got 5)"),
        ("{kind: existing}", "{kind: eks, version: '1.35.2'}", "clusters.lab.version", "must look like 1.35"),
    ],
)
def test_a_message_says_what_is_allowed(old: str, new: str, path: str, reason: str) -> None:
    assert old in GOOD
    with pytest.raises(ConfigError) as caught:
        load_text(GOOD.replace(old, new, 1), "f.yaml")
    [message] = [problem.message for problem in caught.value.problems if problem.path == path]
    assert reason in message


@pytest.mark.parametrize(
    ("old", "new", "path", "column"),
    [
        ("nodes: 2,", "nodes: 2, cpus_per_node: 4,", "pools.rack.cpus_per_node", "cpus_per_node"),
        (", usd_per_gpu_hour: 3.50", "", "pools.burst-spot.usd_per_gpu_hour", "burst-spot"),
        ("  vision: {", "  vision: {lend: {h100-onprem: 9}, ", "teams.vision.lend.h100-onprem", "h100-onprem"),
    ],
)
def test_what_a_model_says_of_a_setting_stands_there_or_at_the_nearest_that_is_there(
    old: str, new: str, path: str, column: str
) -> None:
    problem = only_problem(old, new)
    assert problem.path == path
    line = GOOD.replace(old, new, 1).splitlines()[problem.line - 1]
    assert line[problem.column - 1 :].startswith(column)
    assert not problem.message.startswith(path.rpartition(".")[2])


@pytest.mark.parametrize("key", ["image", "ledger", "h\ud800"])
def test_half_a_character_is_no_text_wherever_it_stands(key: str) -> None:
    value = find(GOOD, "f.yaml").value
    value["agent"][key] = {"kind": "\ud800"} if key == "ledger" else "\ud800"
    with pytest.raises(ConfigError) as caught:
        load_object(value, "x")
    [problem] = caught.value.problems
    assert problem.message == "holds half of a character; write it whole"
    assert str(problem).isprintable()


# What each kind of pydantic's schema can say, by the names that its errors begin with.
FAMILIES = {
    "bool": "bool_",
    "decimal": ("decimal_", "finite_", "greater_", "less_", "multiple_of"),
    "dict": ("dict_", "mapping_type", "invalid_key", "too_"),
    "float": ("float_", "finite_", "greater_", "less_", "multiple_of"),
    "int": ("int_", "greater_", "less_", "multiple_of"),
    "list": ("list_", "too_"),
    "model": ("model_", "recursion_loop"),
    "str": ("string_type", "string_unicode", "string_too", "string_pattern"),
    "timedelta": ("time_delta_", "greater_", "less_"),
    "tuple": ("tuple_", "too_"),
}
SAID_ELSEWHERE = {
    *("any", "default", "function-after", "function-before", "function-plain", "function-wrap", "literal"),
    *("model-field", "model-fields", "no-info", "nullable", "tagged-union", "union", "with-info", "definitions"),
    *("definition-ref", "lax-or-strict", "is-instance", "chain"),
}


def test_every_error_that_a_schema_can_report_has_words_of_ours() -> None:
    kinds = set(_kinds(Fleet.__pydantic_core_schema__))
    assert kinds <= FAMILIES.keys() | SAID_ELSEWHERE, "say here what errors this kind of schema has"
    for kind in kinds & FAMILIES.keys():
        for error in get_args(core_schema.ErrorType):
            if error.startswith(FAMILIES[kind]):
                assert error in {**WRONG_TYPE, **BAD_VALUE}, f"{kind} can say {error}"


def _kinds(schema: Any) -> Any:
    if isinstance(schema, dict):
        if isinstance(schema.get("type"), str):
            yield schema["type"]
        for key, inner in schema.items():
            yield from _kinds(inner) if key != "metadata" else ()
    elif isinstance(schema, list | tuple):
        for inner in schema:
            yield from _kinds(inner)


class Leaf(Model):
    size: int


class Cat(Model):
    kind: Literal["cat"]
    cat: dict[str, Leaf]


class Dog(Model):
    kind: Literal["dog", "wolf"]
    leaves: tuple[Leaf, ...] = ()


Animal = Annotated[Cat | Dog, Field(discriminator="kind")]


class Zoo(Model):
    animals: dict[str, Animal]
    either: Leaf | Dog | int | None = None
    listed: list[Annotated[Leaf | None, Field()]] = Field(default_factory=list)


@pytest.mark.parametrize(
    ("location", "path", "settings"),
    [
        (("animals", "cat", "cat", "cat", "cat", "size"), ("animals", "cat", "cat", "cat", "size"), ()),
        (("animals", "x", "wolf", "leaves", 0, "size"), ("animals", "x", "leaves", 0, "size"), ()),
        (("animals", "x", "dog", "strange"), ("animals", "x", "strange"), ()),
        (("animals", "x"), ("animals", "x"), ("kind", "cat", "leaves")),
        (("animals", "[key]", "[key]"), ("animals", "[key]"), ("kind", "cat", "leaves")),
        (("either", "Leaf", "size"), ("either", "size"), ()),
        (("either", "int"), ("either",), ()),
        (("either", "Dog", "leaves", 1), ("either", "leaves", 1), ("size",)),
        (("listed", 3), ("listed", 3), ("size",)),
        (("unknown", "deep", 5), ("unknown", "deep", 5), ()),
    ],
)
def test_a_location_is_followed_by_types_not_by_names(
    location: tuple[str | int, ...], path: tuple[str | int, ...], settings: tuple[str, ...]
) -> None:
    trail = follow(Zoo, location)
    assert trail.path == path
    assert trail.settings == settings
