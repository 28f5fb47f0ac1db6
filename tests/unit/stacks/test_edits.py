from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from yaml import MappingNode

from stacks.editing.edits import Document, EditError, Entry


def at(document: Document, *path: str) -> Entry:
    mapping = document.root
    entry: Entry | None = None
    for name in path:
        entry = document.entry(mapping, name)
        assert entry is not None, name
        if isinstance(entry.value, MappingNode):
            mapping = entry.value
    assert entry is not None
    return entry


def below(document: Document, *path: str) -> MappingNode:
    value = at(document, *path).value
    assert isinstance(value, MappingNode)
    return value


def edited(text: str, *edits: Callable[[Document], None]) -> str:
    document = Document(text)
    for edit in edits:
        edit(document)
    return document.result()


RENAME = [
    ("a: 1\n", "b: 1\n"),
    ('"a" : 1  # why\n', '"b" : 1  # why\n'),
    ("'a': 1", "'b': 1"),
    ("{a: 1, c: [a]}\n", "{b: 1, c: [a]}\n"),
    ("\ufeffa: 1\r\n# end\r\n", "\ufeffb: 1\r\n# end\r\n"),
    ("x: a\na:   |\n  a: 1\n\n# after\n", "x: a\nb:   |\n  a: 1\n\n# after\n"),
    ("a: &anchor {x: 1}\nc: *anchor\n", "b: &anchor {x: 1}\nc: *anchor\n"),
    ("c: &x 1\na: *x\n", "c: &x 1\nb: *x\n"),
]


@pytest.mark.parametrize(("text", "expected"), RENAME)
def test_a_key_is_renamed_and_nothing_else(text: str, expected: str) -> None:
    assert edited(text, lambda d: d.rename(at(d, "a"), "b")) == expected


REPLACE = [
    ("a: 1 # one\n", 30, "a: 30 # one\n"),
    ("a: '1'\n", "2h", "a: '2h'\n"),
    ('a: "1"\n', "2h", 'a: "2h"\n'),
    ("a: 1\n", "yes", "a: 'yes'\n"),
    ("a: 1\n", "x: # y", "a: 'x: # y'\n"),
    ("a:\nb: 2\n", 3, "a: 3\nb: 2\n"),
    ("a: # later\nb: 2\n", 3, "a: 3 # later\nb: 2\n"),
    ("{a: , b: 2}", 3, "{a: 3 , b: 2}"),
    ('{"a":1,"b":2}', 3, '{"a":3,"b":2}'),
    ("b: &x 5\na: *x  # five\nc: *x\n", 6, "b: &x 5\na: 6  # five\nc: *x\n"),
    ("a:\n  # over\n  1\n", {"k": [1, "2"]}, "a:\n  # over\n  {k: [1, '2']}\n"),
    ("a: one\n  two\nb: 2\n", "Grüße", "a: Grüße\nb: 2\n"),
]


@pytest.mark.parametrize(("text", "value", "expected"), REPLACE)
def test_a_scalar_is_replaced_in_its_quotes(text: str, value: object, expected: str) -> None:
    assert edited(text, lambda d: d.replace(at(d, "a"), value)) == expected


REMOVE = [
    ("# on a\na: 1  # mine\nb: 2\n", "# on a\nb: 2\n"),
    ("b: 2\na: 1", "b: 2\n"),
    ("b: 2\na:\n  x: 1  # inner\n  y: [1,\n    2]\n\n# of c\nc: 3\n", "b: 2\n\n# of c\nc: 3\n"),
    ("b: 2\na: |\n  text\n  more\nc: 3\n", "b: 2\nc: 3\n"),
    ("b: 2\r\na: 1 # x\r\nc: 3\r\n", "b: 2\r\nc: 3\r\n"),
    ("{a: 1, b: 2}\n", "{b: 2}\n"),
    ("{b: 2, a: 1}\n", "{b: 2}\n"),
    ("{b: 2, a: 1, c: 3}\n", "{b: 2, c: 3}\n"),
    ("{ a: 1 }\n", "{  }\n"),
    ("{b: 2, a: 1,}\n", "{b: 2,}\n"),
    ("{\n  b: 2, # two\n  a: 1 # one\n}\n", "{\n  b: 2, # two\n}\n"),
    ("{\n  a: 1, # one\n  b: 2 # two\n}\n", "{\n  b: 2 # two\n}\n"),
    ("{b: 2, a: 1, # both\n  c: 3}\n", "{b: 2,  # both\n  c: 3}\n"),
    ("{ b: 2\n, a: 1\n, c: 3 }\n", "{ b: 2\n,  c: 3 }\n"),
    ("a: 1  # why\n", "{}  # why\n"),
    ("\ufeffa: 1\nb: 2\n", "\ufeffb: 2\n"),
]


@pytest.mark.parametrize(("text", "expected"), REMOVE)
def test_an_entry_is_removed_with_its_own_comment(text: str, expected: str) -> None:
    assert edited(text, lambda d: d.remove(at(d, "a"))) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("b: 2\n# above\na: 1  # why\nc: 3\n", "b: 2\n# above\n# why\nc: 3\n"),
        ("b: 2\na: 1\nc: 3\n", "b: 2\nc: 3\n"),
        ("{\n  b: 2,\n  a: 1, # one\n}\n", "{\n  b: 2,\n  # one\n}\n"),
    ],
)
def test_the_comment_of_a_removed_entry_can_stay(text: str, expected: str) -> None:
    assert edited(text, lambda d: d.remove(at(d, "a"), keep_comment=True)) == expected


INSERT = [
    ("a: 1  # one\n# end\n", "a: 1  # one\nn: 0\n# end\n"),
    ("a: 1", "a: 1\nn: 0"),
    ("a: 1\r\nb: 2\r\n", "a: 1\r\nn: 0\r\nb: 2\r\n"),
    ("a:\n  x:\n    y: 1 # deep\n\n# of b\nb: 2\n", "a:\n  x:\n    y: 1 # deep\nn: 0\n\n# of b\nb: 2\n"),
    ("a: |\n  text\nb: 2\n", "a: |\n  text\nn: 0\nb: 2\n"),
    ("{a: 1, b: 2}\n", "{a: 1, n: 0, b: 2}\n"),
    ("{a: 1}\n", "{a: 1, n: 0}\n"),
    ("{\n  a: 1, # one\n  b: 2\n}\n", "{\n  a: 1, # one\n  n: 0,\n  b: 2\n}\n"),
    ("{\n  b: 2,\n  a: 1 # one\n}\n", "{\n  b: 2,\n  a: 1, # one\n  n: 0\n}\n"),
    ("{\n  a: 1\n, b: 2\n}\n", "{\n  a: 1, n: 0\n, b: 2\n}\n"),
]


@pytest.mark.parametrize(("text", "expected"), INSERT)
def test_an_entry_is_inserted_behind_another(text: str, expected: str) -> None:
    assert edited(text, lambda d: d.insert(d.root, "n", 0, after=at(d, "a"))) == expected


def test_an_entry_goes_to_the_end_of_a_nested_mapping_at_its_indentation() -> None:
    text = "a:\n    x: 1\n    y:\n    - 1  # dash\nb: 2\n"

    assert edited(text, lambda d: d.insert(below(d, "a"), "n", [1])) == text.replace("dash\n", "dash\n    n: [1]\n")


@pytest.mark.parametrize("empty", ["{}", "{ }", "{ # none\n}", "&x {}"])
def test_an_empty_mapping_gets_its_first_entry(empty: str) -> None:
    text = f"a: {empty}\n"

    for insert in (Document.insert, Document.insert_first):
        changed = edited(text, lambda d, put=insert: put(d, below(d, "a"), "n", {"k": "v"}))  # type: ignore[misc]
        assert yaml.safe_load(changed) == {"a": {"n": {"k": "v"}}}


FIRST = [
    ("r:  # fleet\n  # of a\n  a: 1\n", "r:  # fleet\n  n: 0\n  # of a\n  a: 1\n"),
    ("r:\n  # heading\n\n  a: 1\n", "r:\n  # heading\n\n  n: 0\n  a: 1\n"),
    ("r: {a: 1}\n", "r: {n: 0, a: 1}\n"),
    ("r:\n    a: 1\n", "r:\n    n: 0\n    a: 1\n"),
]


@pytest.mark.parametrize(("text", "expected"), FIRST)
def test_a_first_entry_goes_above_the_comment_of_the_next(text: str, expected: str) -> None:
    assert edited(text, lambda d: d.insert_first(below(d, "r"), "n", 0)) == expected


@pytest.mark.parametrize("head", ["", "\ufeff", "# head of the file\n"])
def test_a_first_entry_of_the_file_goes_below_its_head(head: str) -> None:
    assert edited(f"{head}a: 1\n", lambda d: d.insert_first(d.root, "n", 0)) == f"{head}n: 0\na: 1\n"


MOVE = [
    ("# on a\na: 1 # one\nb: 2\n\nc: 3\n", "c", "b: 2\n\nc: 3\n# on a\na: 1 # one\n"),
    ("a:\n  x: 1\nb: 2", "b", "b: 2\na:\n  x: 1"),
    ("{a: 1, b: 2, c: 3}\n", "b", "{b: 2, a: 1, c: 3}\n"),
    ("b: 2\na: 1\n", None, "a: 1\nb: 2\n"),
    ("b: 2\na: 1\n", "b", "b: 2\na: 1\n"),
]


@pytest.mark.parametrize(("text", "after", "expected"), MOVE)
def test_an_entry_moves_with_its_comments(text: str, after: str | None, expected: str) -> None:
    assert (
        edited(text, lambda d: d.move(at(d, "a"), after=at(d, after) if after else None)).rstrip() == expected.rstrip()
    )


def test_several_edits_are_made_at_once() -> None:
    text = dedent("""\
        # head
        a: 1   # one
        b: {x: 1, y: 2, z: 3}
        c: 3
        """)

    assert edited(
        text,
        lambda d: d.rename(at(d, "a"), "first"),
        lambda d: d.replace(at(d, "a"), "one"),
        lambda d: d.remove(at(d, "b", "y")),
        lambda d: d.insert(below(d, "b"), "w", 0),
        lambda d: d.insert(d.root, "d", 4),
    ) == dedent("""\
        # head
        first: one   # one
        b: {x: 1, z: 3, w: 0}
        c: 3
        d: 4
        """)


REFUSED = [
    ("b: 1\na: &x 1\nc: *x\n", lambda d: d.replace(at(d, "a"), 2), 2, "anchor"),
    ("a: !!str 1\n", lambda d: d.replace(at(d, "a"), 2), 1, "tag"),
    ("a: |\n  1\n", lambda d: d.replace(at(d, "a"), 2), 1, "one line"),
    ("a: [1]\n", lambda d: d.replace(at(d, "a"), 2), 1, "one line"),
    ("? a\n: 1\n", lambda d: d.rename(at(d, "a"), "b"), 1, "plain form"),
    ("&k a: 1\nc: *k\n", lambda d: d.rename(at(d, "a"), "b"), 1, "plain form"),
    ("x: &k a\n*k : 1\n", lambda d: d.rename(at(d, "a"), "b"), 1, "plain form"),
    ("{a}\n", lambda d: d.rename(at(d, "a"), "b"), 1, "plain form"),
    ("a: # why\n  1\nb: 2\n", lambda d: d.remove(at(d, "a"), keep_comment=True), 1, "comment"),
    ("b: 1\na: &x {k: 1}\nc: *x\n", lambda d: d.remove(at(d, "a")), 2, "by hand"),
    ("b: {x: 1, y: 2, z: 3}\n", lambda d: (d.remove(at(d, "b", "y")), d.remove(at(d, "b", "z"))), 1, "meet"),
]


@pytest.mark.parametrize(("text", "edit", "line", "reason"), REFUSED)
def test_what_cannot_be_edited_for_certain_is_refused_with_its_line(
    text: str, edit: Callable[[Document], None], line: int, reason: str
) -> None:
    with pytest.raises(EditError, match=reason) as refused:
        edited(text, edit)
    assert refused.value.line == line


def test_an_entry_on_the_line_of_a_dash_is_not_removed() -> None:
    document = Document("l:\n- a: 1\n  b: 2\n")
    item = at(document, "l").value.value[0]
    entry = document.entry(item, "a")
    assert entry is not None

    with pytest.raises(EditError, match="dash"):
        document.remove(entry)


@pytest.mark.parametrize(
    ("text", "line"),
    [("", 1), ("# only\n", 1), ("- 1\n", 1), ("a: [\n", 2), ("a: 1\n---\nb: 2\n", 2), ("a: 1\rb: 2\n", 1),
     ("a: 1\nb: x\u2028y\n", 2), ("a: \x00\n", 0), ("[" * 1_000, 0), ("a: *none\n", 1)],
)  # fmt: skip
def test_a_text_that_is_no_mapping_is_refused(text: str, line: int) -> None:
    with pytest.raises(EditError) as refused:
        Document(text)
    assert refused.value.line == line


def test_shared_and_cyclic_nodes_are_read_back_in_linear_time() -> None:
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 40))
    text = f"{bomb}loop: &loop\n  self: *loop\n"

    assert edited(text, lambda d: d.rename(at(d, "loop"), "ring")) == text.replace("loop: &loop", "ring: &loop")


VALUES = {
    "1": 1,
    "'q # x'": "q # x",
    "{x: 1, y: [1, 2]}": {"x": 1, "y": [1, 2]},
    "[1,\n    2]": [1, 2],
    "\n    x: 1": {"x": 1},
    "\n    # inside\n    - 1": [1],
    "|\n    text\n": "text\n",
    "": None,
}


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, dict[str, object]]:
    lines, said = ["r:\n"], {}
    for name in draw(st.lists(st.sampled_from("abcdef"), min_size=2, max_size=6, unique=True)):
        lines.append(draw(st.sampled_from(["", "\n", f"  # above {name}\n", f"# shallow {name}\n"])))
        value = draw(st.sampled_from(sorted(VALUES)))
        behind = "" if value.endswith("\n") else draw(st.sampled_from(["", f"  # behind {name}"])) + "\n"
        lines.append(f"  {name}: {value}{behind}")
        said[name] = VALUES[value]
    text = "".join(lines) + draw(st.sampled_from(["", "# end\n", "z: 1\n", "z: 1"]))
    return text, said


@settings(max_examples=120)
@given(documents(), st.data())
def test_any_edit_says_what_was_asked_for_and_loses_no_comment_of_others(
    document: tuple[str, dict[str, object]], data: st.DataObject
) -> None:
    text, said = document
    name, other = data.draw(st.permutations(sorted(said)))[:2]
    windows = data.draw(st.booleans())
    edit = data.draw(st.sampled_from(["rename", "remove", "insert", "first", "move"]))
    source = Document(text.replace("\n", "\r\n") if windows else text)
    pairs = list(said.items())
    place = [key for key, _ in pairs].index
    if edit == "rename":
        source.rename(at(source, "r", name), "new")
        pairs[place(name)] = ("new", said[name])
    elif edit == "remove":
        source.remove(at(source, "r", name))
        del pairs[place(name)]
    elif edit == "insert":
        source.insert(below(source, "r"), "new", 7, after=at(source, "r", name))
        pairs.insert(place(name) + 1, ("new", 7))
    elif edit == "first":
        source.insert_first(below(source, "r"), "new", 7)
        pairs.insert(0, ("new", 7))
    else:
        source.move(at(source, "r", name), after=at(source, "r", other))
        pair = pairs.pop(place(name))
        pairs.insert([key for key, _ in pairs].index(other) + 1, pair)

    result = source.result()

    assert list(yaml.safe_load(result)["r"].items()) == pairs
    lost = {line.strip() for line in text.splitlines()} - {line.strip() for line in result.splitlines()}
    assert not [line for line in lost if line.startswith("#") and not (edit == "remove" and line == "# inside")]
    assert ("\r\n" in result) == windows
    assert result.count("\n") == result.count("\r\n") or not windows
