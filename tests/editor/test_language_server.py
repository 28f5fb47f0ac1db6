"""What an editor shows while somebody writes a stack file: the schema as the language server of VS Code, Neovim and
others understands it."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from stacks.catalogue import catalogue
from tests.editor.client import LanguageServer

STACKS = Path(__file__).parents[2] / "stacks"
MODELINE = "# yaml-language-server: $schema=fleet.schema.json\n"
POOL = "config:\n  gpufleet:fleet:\n    pools:\n      rack:\n"
HERE = "▮"
_buffers = count()


class Buffer:
    """A file in the editor that is not saved, beside the schema."""

    def __init__(self, editor: LanguageServer, text: str) -> None:
        whole = MODELINE + text
        before = whole.partition(HERE)[0]
        self._editor = editor
        self._path = STACKS / f"Pulumi.buffer-{next(_buffers)}.yaml"
        self._line, self._column = before.count("\n"), len(before) - before.rfind("\n") - 1
        self.problems = editor.open(self._path, whole.replace(HERE, ""))

    @property
    def offered(self) -> dict[str, Any]:
        return {item["label"]: item for item in self._editor.complete(self._path, self._line, self._column)}

    @property
    def hover(self) -> str:
        return self._editor.hover(self._path, self._line, self._column)

    @property
    def messages(self) -> list[tuple[int, str]]:
        return [(problem["range"]["start"]["line"], problem["message"]) for problem in self.problems]


@pytest.mark.parametrize(
    "file", sorted([*STACKS.glob("Pulumi.*.yaml"), *STACKS.glob("teams.*.yaml"), STACKS / "example.yaml"])
)
def test_our_own_files_have_nothing_underlined(editor: LanguageServer, file: Path) -> None:
    buffer = STACKS / f"{next(_buffers)}.{file.name}"

    assert editor.open(buffer, file.read_text("utf-8")) == []


def test_a_file_of_teams_is_checked_by_its_own_schema(editor: LanguageServer) -> None:
    text = (STACKS / "teams.prod.yaml").read_text("utf-8").replace("weight: 2", "wieght: 2")
    problems = editor.open(STACKS / f"{next(_buffers)}.teams.yaml", text)

    assert [problem["message"] for problem in problems] == ["Property wieght is not allowed."]


def test_below_a_pool_its_own_settings_are_offered_and_no_others(editor: LanguageServer) -> None:
    buffer = Buffer(editor, POOL + f"        location: aws\n        provisioner: karpenter\n        {HERE}\n")
    offered = buffer.offered

    assert {"market", "instance_types", "zones", "max_gpus", "cluster"} <= set(offered)
    assert not {"gpu", "machine_type", "nodes", "driver", "location"} & set(offered)
    assert "Most GPUs at any time" in str(offered["max_gpus"]["documentation"])


def test_a_pool_without_a_location_is_asked_for_it_first(editor: LanguageServer) -> None:
    buffer = Buffer(editor, POOL + f"        {HERE}\n")

    assert next(iter(buffer.offered)) == "location"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (f"        location: {HERE}\n", ["onprem", "aws", "gcp", "broker"]),
        (f"        location: gcp\n        provisioner: {HERE}\n", ["existing", "node-pool"]),
        (f"        location: onprem\n        gpu: {HERE}\n", sorted(catalogue().gpus)),
        (
            f"        location: aws\n        provisioner: existing\n        market: {HERE}\n",
            ["spot", "on-demand", "reserved", "capacity-block"],
        ),
    ],
)
def test_the_values_of_a_pools_setting_are_offered(editor: LanguageServer, text: str, values: list[str]) -> None:
    assert sorted(Buffer(editor, POOL + text).offered) == sorted(values)


def test_the_instance_types_of_the_catalogue_are_offered(editor: LanguageServer) -> None:
    text = f"        location: aws\n        provisioner: karpenter\n        instance_types:\n          - {HERE}\n"

    assert "p5.48xlarge" in Buffer(editor, POOL + text).offered


def test_presets_and_policies_are_offered(editor: LanguageServer) -> None:
    preset = Buffer(editor, f"config:\n  gpufleet:fleet:\n    preset: {HERE}\n")
    policy = Buffer(editor, f"config:\n  gpufleet:fleet:\n    burst:\n      policy:\n        kind: {HERE}\n")

    assert sorted(preset.offered) == ["balanced", "cost", "performance"]
    assert sorted(policy.offered) == ["always", "compute-wait", "constant", "never", "per-gpu"]


def test_the_top_of_an_empty_file_offers_the_whole_object(editor: LanguageServer) -> None:
    offered = Buffer(editor, f"config:\n  {HERE}\n").offered

    assert "schema_version: ${1:1}" in offered["gpufleet:fleet"]["insertText"]


def test_a_version_is_completed_in_quotes_and_a_duration_by_example(editor: LanguageServer) -> None:
    cluster = "config:\n  gpufleet:fleet:\n    clusters:\n      use:\n        kind: eks\n"
    version = Buffer(editor, cluster + f"        version: {HERE}\n")
    duration = Buffer(editor, f"config:\n  gpufleet:fleet:\n    targets:\n      wait: {HERE}\n")

    assert [item["insertText"] for item in version.offered.values()] == ['"1.35"']
    assert {"90s", "4m30s", "2h"} <= {item["insertText"] for item in duration.offered.values()}


def test_pointing_at_a_setting_shows_what_it_means(editor: LanguageServer) -> None:
    wait = Buffer(editor, f"config:\n  gpufleet:fleet:\n    classes:\n      P0: {{max_{HERE}wait: 5m}}\n")
    location = Buffer(editor, POOL + f"        loca{HERE}tion: onprem\n")

    assert "Longest wait before a job of this class may go to the cloud." in wait.hover
    assert "`onprem`: Nodes that the company owns" in location.hover


def test_an_unknown_setting_is_underlined_where_it_stands(editor: LanguageServer) -> None:
    text = (STACKS / "Pulumi.local.yaml").read_text("utf-8").replace("max_wait: 5m", "max_weight: 5m")
    line = next(number for number, line in enumerate(text.splitlines()) if "max_weight" in line)

    assert Buffer(editor, text.removeprefix(MODELINE)).messages == [(line, "Property max_weight is not allowed.")]


def test_a_wrong_quantity_is_underlined_with_an_example(editor: LanguageServer) -> None:
    text = (STACKS / "Pulumi.local.yaml").read_text("utf-8").replace("max_wait: 5m", "max_wait: 5 parsecs")

    assert [message for _, message in Buffer(editor, text.removeprefix(MODELINE)).messages] == [
        "write it like 90s or 4m30s or 2h"
    ]


def test_a_misspelt_market_is_underlined_with_the_markets_of_that_pool(editor: LanguageServer) -> None:
    text = (STACKS / "Pulumi.local.yaml").read_text("utf-8").replace("market: on-demand", "market: on-demnd")
    [(_, message)] = Buffer(editor, text.removeprefix(MODELINE)).messages

    assert message == 'Value is not accepted. Valid values: "spot", "on-demand", "reserved", "capacity-block".'
