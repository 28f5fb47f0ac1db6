"""What holds of every quantity: the table, round trips, the schema, and hostile input."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from tests.unit.stacks.quantities.table import TABLE

ADAPTERS: dict[str, TypeAdapter[Any]] = {name: TypeAdapter(kind) for name, (kind, _, _) in TABLE.items()}
GOOD = [(name, value, canonical) for name, (_, good, _) in TABLE.items() for value, canonical in good]
BAD = [(name, value, words) for name, (_, _, bad) in TABLE.items() for value, words in bad]
UNITS_NEEDED = {"Percentage", "Rate", "DataSize"}
"""Types whose value is a bare number, which is refused as input."""

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NEAR_MISSES = st.text(alphabet="0123456789.,:-+/%*$ xgGMkKiBbpsdhmnuUSDeE²٣é\0\ud800", max_size=24)
PIECES = st.lists(st.sampled_from([value for _, value, _ in GOOD + BAD if isinstance(value, str)]), max_size=3)


def problem(name: str, value: object) -> str:
    with pytest.raises(ValidationError) as caught:
        ADAPTERS[name].validate_python(value)
    return str(caught.value.errors(include_url=False)[0]["msg"])


@pytest.mark.parametrize(("name", "value", "canonical"), GOOD, ids=repr)
def test_every_spelling_has_one_canonical_form_that_reads_back(name: str, value: object, canonical: object) -> None:
    adapter = ADAPTERS[name]
    read = adapter.validate_python(value)
    assert adapter.dump_python(read) == canonical
    again = adapter.validate_python(canonical)
    assert again == read
    assert hash(again) == hash(read)
    assert adapter.dump_python(again) == canonical
    if name not in UNITS_NEEDED:
        assert adapter.validate_python(read) == read


@pytest.mark.parametrize(("name", "value", "words"), BAD, ids=lambda value: repr(value)[:60])
def test_what_is_wrong_is_refused_with_words_that_help(name: str, value: object, words: str) -> None:
    message = problem(name, value)
    assert words in message
    assert len(message) < 600


@pytest.mark.parametrize("name", ADAPTERS)
def test_no_value_from_a_file_raises_anything_but_a_validation_error(name: str) -> None:
    @settings(max_examples=25)
    @given(JSON | NEAR_MISSES | PIECES.map("".join) | PIECES.map(" ".join))
    def check(value: object) -> None:
        try:
            read = ADAPTERS[name].validate_python(value)
        except ValidationError:
            return
        canonical = ADAPTERS[name].dump_python(read)
        assert ADAPTERS[name].validate_python(canonical) == read
        assert ADAPTERS[name].dump_python(ADAPTERS[name].validate_python(canonical)) == canonical

    check()


@pytest.mark.parametrize("name", ADAPTERS)
def test_huge_text_and_numbers_are_refused_at_once_and_not_repeated(name: str) -> None:
    parts = ["9", "a", "a.", "a-", "1.", "1,", "1g.", "Mon,", "Mon-", "0 ", " ", "1s", ":", "\0", "é", "["]
    started = time.perf_counter()
    for part in parts:
        assert len(problem(name, part * (100_000 // len(part)))) < 600
    for number in (10**5000, -(10**5000), [["a"] * 50_000], ["a" * 100_000], {"a": 10**5000}):
        assert len(problem(name, number)) < 600
    assert time.perf_counter() - started < 0.5


@pytest.mark.parametrize("name", ADAPTERS)
def test_the_schema_tells_an_editor_type_and_examples_and_accepts_what_is_accepted(name: str) -> None:
    schema = ADAPTERS[name].json_schema()
    assert ADAPTERS[name].json_schema(mode="serialization")["type"]
    for example in schema.get("examples", []):
        ADAPTERS[name].validate_python(example)
    if name not in {"KubeName", "GpuCount"}:
        assert schema["examples"]
    texts = [value for _, value, _ in (row for row in GOOD if row[0] == name) if isinstance(value, str)]
    for text in texts if "pattern" in schema and "Duration" not in name else []:
        assert re.search(schema["pattern"], text), text


def test_the_schema_of_gpu_names_lists_the_catalogue() -> None:
    assert {"h100-sxm-80gb", "l4-24gb"} <= set(ADAPTERS["GpuName"].json_schema()["enum"])


@pytest.mark.parametrize(
    "name", sorted(ADAPTERS.keys() - {"Usd", "Price", "GpuCount", "KubeQuantity", "Asn", "TimeOfDay"})
)
def test_a_boolean_that_yaml_made_of_a_word_is_refused(name: str) -> None:
    assert problem(name, True)
    assert problem(name, False)
