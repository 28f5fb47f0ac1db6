"""Every YAML snippet of the documentation does what the page says.

A snippet is one of four things: a whole stack file, which loads; some sections of the fleet object, which load in the
place of those of `stacks/example.yaml`; Kubernetes objects, whose labels of ours exist; or marked by a comment before
it: `<!-- fails: words of the error -->` or `<!-- not ours -->`. What `gpufleet check` is shown to print is tried, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
import yaml

from stacks import labels
from stacks.describing.reference import EXAMPLE
from stacks.fleet import Fleet
from stacks.load import KEY, ConfigError, load_file, load_object, load_text
from stacks.reading.stackfile import find

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))

_FENCED = re.compile(
    r"(?:<!--\s*(?P<mark>.*?)\s*-->\s*\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_OUR_LABELS = {value for name, value in vars(labels).items() if name.isupper() and isinstance(value, str)}


@dataclass(frozen=True)
class Snippet:
    page: str
    line: int
    kind: str
    mark: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def snippets(page: str, text: str) -> Iterator[Snippet]:
    for match in _FENCED.finditer(text):
        line = text.count("\n", 0, match.start("text"))
        yield Snippet(page, line, match["kind"], match["mark"] or "", match["text"])


def documented(kind: str) -> list[Snippet]:
    every = [one for page in PAGES for one in snippets(str(page.relative_to(ROOT)), page.read_text("utf-8"))]
    return [one for one in every if one.kind == kind]


def verify(snippet: Snippet) -> None:
    """Raise AssertionError unless the snippet does what its kind and its mark say."""
    if snippet.mark == "not ours":
        return
    expected = snippet.mark.removeprefix("fails:").strip() if snippet.mark.startswith("fails:") else ""
    error = _error(snippet)
    assert bool(error) == bool(expected), f"{snippet}: should {'fail' if expected else 'load'}; {error}"
    assert expected in error, f"{snippet}: should fail with {expected!r}, fails with {error}"


def _error(snippet: Snippet) -> str:
    """What is wrong with a snippet; nothing where it is right."""
    try:
        _use(snippet)
    except (ConfigError, yaml.YAMLError) as error:
        return str(error)
    return ""


def _use(snippet: Snippet) -> None:
    documents = [one for one in yaml.safe_load_all(snippet.text) if isinstance(one, dict)]
    if not documents:
        pytest.fail(f"{snippet}: holds no mapping")
    elif all({"apiVersion", "kind"} <= one.keys() for one in documents):
        unknown = {key for one in documents for key in _label_keys(one)} - _OUR_LABELS
        assert not unknown, f"{snippet}: no such label: {sorted(unknown)}"
    elif "config" in documents[0]:
        load_text(snippet.text, str(snippet))
    elif documents[0].keys() <= Fleet.model_fields.keys():
        load_object(base() | _fragment(snippet.text), str(snippet))
    else:
        pytest.fail(
            f"{snippet}: neither a stack file, sections of a fleet, nor an object; or mark it: <!-- not ours -->"
        )


def base() -> dict[str, Any]:
    value: dict[str, Any] = find(EXAMPLE.read_text("utf-8"), EXAMPLE.name).value
    return value


def _fragment(text: str) -> Any:
    return find(f"config:\n  {KEY}:\n{indent(text, '    ')}", "snippet").value


def _label_keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (key for key in value if isinstance(key, str) and key.startswith(labels.PREFIX))
        for inner in value.values():
            yield from _label_keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _label_keys(inner)


@pytest.mark.parametrize("snippet", documented("yaml"), ids=str)
def test_every_snippet_does_what_the_page_says(snippet: Snippet) -> None:
    verify(snippet)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("```yaml\npreset: cheap\n```\n", "must be one of"),
        ("<!-- fails: must be one of -->\n```yaml\npreset: cost\n```\n", "should fail"),
        ("<!-- fails: must be more -->\n```yaml\npreset: cheap\n```\n", "should fail with 'must be more'"),
        ("```yaml\nconfig: {}\n```\n", "has no gpufleet:fleet"),
        ("```yaml\nservices: {web: {}}\n```\n", "neither a stack file"),
        ("```yaml\n# nothing\n```\n", "holds no mapping"),
        ("```yaml\na: [\n```\n", "while parsing"),
        (
            "```yaml\napiVersion: v1\nkind: Node\nmetadata: {labels: {gpufleet.dev/flavour: h100}}\n```\n",
            "no such label",
        ),
    ],
)
def test_a_snippet_that_does_not_is_found(text: str, reason: str) -> None:
    [snippet] = snippets("page.md", text)

    with pytest.raises((AssertionError, pytest.fail.Exception), match=re.escape(reason)):
        verify(snippet)


@pytest.mark.parametrize(
    "text",
    [
        "```yaml\npreset: cost\n```\n",
        "<!-- fails: did you mean cost? -->\n```yaml\npreset: cots\n```\n",
        "<!-- not ours -->\n```yaml\nservices: {web: {}}\n```\n",
        "```yaml\napiVersion: v1\nkind: Node\nmetadata: {labels: {gpufleet.dev/flavor: h100-onprem}}\n```\n",
    ],
)
def test_a_snippet_that_does_is_not_reported(text: str) -> None:
    [snippet] = snippets("page.md", text)

    verify(snippet)


SLIPS = {
    "Pulumi.prod.yaml": {
        "market: spot, instance": "market: sopt, instance",
        "default: true": "defualt: true",
        "wait_per_gpu_hour: 4m30s": "wait_per_gpu_hour: 270",
        '"0-5": [3g.20gb, 2g.10gb,': '"0-5": [4g.20gb, 3g.20gb,',
    },
    "teams.prod.yaml": {"vision: {quota: {h100-onprem: 40,": "vision: {quota: {h100-onprem: forty,"},
}
"""What the README's wrong file has wrong, beside the one in the repository."""


def test_what_check_is_shown_to_print_is_what_it_prints(tmp_path: Path) -> None:
    for name, slips in SLIPS.items():
        text = (ROOT / "stacks" / name).read_text("utf-8")
        for right, wrong in slips.items():
            assert text.count(right) == 1
            text = text.replace(right, wrong)
        (tmp_path / name).write_text(text, "utf-8")
    [shown] = [
        one.text for one in documented("console") if "gpufleet check stacks/Pulumi.prod.yaml\nstacks/" in one.text
    ]

    with pytest.raises(ConfigError) as raised:
        load_file(tmp_path / "Pulumi.prod.yaml", display="stacks/Pulumi.prod.yaml")

    assert shown.splitlines()[1:-3] == [str(problem) for problem in raised.value.problems]
