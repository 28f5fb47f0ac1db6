"""Wrong files that cannot stand in a repository as plain text: built for a test, each by one small function.

They are too large, not text, not files, or hold characters that editors and git would change. What is said about each
stands in `built/<name>.expected`, like the expectations of the written files; a builder's name is its file's name.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

LARGEST_BYTES: Final = 4 * 2**20
"""The most that the reader promises to read."""

GOOD: Final = """\
config:
  gpufleet:fleet:
    schema_version: 1
    organization: acme
    clusters:
      lab: {kind: existing}
    pools:
      rack: {cluster: lab, location: onprem, gpu: h100-sxm-80gb, gpus_per_node: 8, nodes: 2, usd_per_gpu_hour: 1}
      spot: {cluster: lab, location: broker, provider: north, market: spot, max_gpus: 16, usd_per_gpu_hour: 2,
             shape: {gpu: h100-sxm-80gb, gpus_per_node: 8, cpus_per_node: 208, memory_per_node: 1800Gi}}
    classes:
      batch: {priority: 10, default: true}
    teams:
      vision: {quota: {h100-onprem: 16}, budget: {monthly: 100 USD}}
    burst:
      order: [spot]
      budget: {monthly: 200 USD}
"""

Build = Callable[[Path], None]
"""Makes the wrong file at a path that is free, in a folder of its own."""

_RACK: Final = "cluster: lab, location: onprem, gpu: h100-sxm-80gb, gpus_per_node: 8"


def changed(old: str, new: str) -> str:
    """The good file with one change."""
    assert GOOD.count(old) == 1, old
    return GOOD.replace(old, new)


def many_pools(count: int, last: str) -> str:
    """The good file with so many racks, the last of them with other settings."""
    racks = [f"      rack-{number}: {{{_RACK}, nodes: 1, usd_per_gpu_hour: 1}}\n" for number in range(count - 1)]
    return changed("    classes:\n", "".join(racks) + f"      rack-{count - 1}: {{{_RACK}, {last}}}\n    classes:\n")


def _text(text: str) -> Build:
    return lambda path: _write(path, text.encode())


def _bytes(content: bytes) -> Build:
    return lambda path: _write(path, content)


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _nothing(_: Path) -> None:
    """A file that is not there."""


def _unreadable(path: Path) -> None:
    path.write_text(GOOD)
    path.chmod(0)


def _dangling_link(path: Path) -> None:
    path.symlink_to("nowhere.yaml")


def _link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def _teams_elsewhere(teams: Build) -> Build:
    """The good file with its teams in a file of their own, which is the one that is wrong."""

    def build(path: Path) -> None:
        path.write_text(
            changed(
                "    teams:\n      vision: {quota: {h100-onprem: 16}, budget: {monthly: 100 USD}}\n",
                "    teams_file: teams.yaml\n",
            )
        )
        teams(path.parent / "teams.yaml")

    return build


def _doubling(levels: int) -> str:
    """The billion laughs: each line holds the one before it ten times."""
    lines = ["bomb:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"]
    lines += [f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, levels)]
    return "".join(lines)


def _nested_by_aliases(levels: int) -> str:
    return "bomb:\n  a0: &a0 [x]\n" + "".join(f"  a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, levels))


BUILT: Final[dict[str, Build]] = {
    # Not files, or not there.
    "missing": _nothing,
    "folder": lambda path: path.mkdir(),
    "pipe": lambda path: os.mkfifo(path),
    "unreadable": _unreadable,
    "dangling-link": _dangling_link,
    "link-to-itself": _link_to_itself,
    # Nothing in them.
    "empty": _text(""),
    "only-spaces": _text("  \n\n   \n"),
    "only-comments": _text("# To be written.\n# Soon.\n"),
    "only-a-marker": _text("---\n"),
    "only-a-byte-order-mark": _bytes(b"\xef\xbb\xbf"),
    # Not text, or text of another kind.
    "junk": _bytes(bytes((number * 73 + 41) % 256 for number in range(512))),
    "gzip": _bytes(b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03" + bytes(range(64))),
    "utf-16-little": _bytes(b"\xff\xfe" + GOOD.encode("utf-16-le")),
    "utf-16-big": _bytes(b"\xfe\xff" + GOOD.encode("utf-16-be")),
    "utf-16-unmarked": _bytes(GOOD.encode("utf-16-le")),
    "utf-32": _bytes(b"\xff\xfe\x00\x00" + GOOD.encode("utf-32-le")),
    "latin-1": _bytes(changed("vision:", "vision-münchen:").encode("latin-1")),
    "cut-within-a-character": _bytes(GOOD.encode() + "# €".encode()[:-1]),
    "surrogates": _bytes(changed("acme", "ac\ud800me").encode("utf-8", "surrogatepass")),
    "byte-order-mark-and-mistake": _bytes(b"\xef\xbb\xbf" + changed("schema_version: 1", "schema_version: 2").encode()),
    "byte-order-mark-and-mistake-in-line-1": _bytes(b"\xef\xbb\xbfconfg: {}\n"),
    "byte-order-mark-inside": _text(changed("acme", "ac\ufeffme")),
    "windows-line-ends": _bytes(changed("nodes: 2", "nodes: two").replace("\n", "\r\n").encode()),
    "windows-line-ends-and-syntax": _bytes(changed("[spot]", "[spot").replace("\n", "\r\n").encode()),
    "old-mac-line-ends": _bytes(changed("nodes: 2", "nodes: two").replace("\n", "\r").encode()),
    "no-line-end-at-the-end": _bytes(changed("200 USD", "200 EUR").rstrip("\n").encode()),
    "line-separators": _text(changed("organization: acme", "organization: acme # one\u2028# two\u0085    strict: 3")),
    # Characters that would do something to a terminal or to a reader's eyes.
    "null-character": _text(changed("acme", "ac\0me")),
    "null-escape": _text(changed("acme", '"ac\\0me"')),
    "bell-character": _text(changed("acme", "ac\ame")),
    "terminal-colours": _text(changed("acme", "\x1b[31macme\x1b[0m")),
    "terminal-colours-as-escapes": _text(changed("acme", '"\\e[31macme\\e[0m"')),
    "terminal-title-as-escapes": _text(changed("{monthly: 200 USD}", '{monthly: "\\e]0;pwned\\a200 USD"}')),
    "terminal-escapes-in-a-key": _text(changed("vision:", '"\\e[2Jvision":')),
    "terminal-escapes-in-an-unknown-setting": _text(changed("nodes: 2", '"\\e[2Jnodes": 2')),
    "line-feed-in-a-value": _text(changed("acme", '"acme\\nstack.yaml:1:1: all is well"')),
    "line-feed-in-a-key": _text(changed("vision:", '"vision\\nstack.yaml":')),
    "carriage-return-in-a-value": _text(changed("acme", '"acme\\rstack.yaml: all is well"')),
    "right-to-left-mark": _text(changed("acme", "ac\u202eme")),
    "right-to-left-mark-in-a-key": _text(changed("vision:", '"vis\u202eion":')),
    "zero-width-space-in-a-key": _text(changed("schema_version:", '"schema\u200b_version":')),
    "no-break-space-in-the-indentation": _text(changed("    organization:", "   \u00a0organization:")),
    "look-alike-letters": _text(changed("organization:", "\u043erganization:")),
    "astral-character": _text(changed("acme", "acme-\U0001f680")),
    "combining-characters": _text(changed("acme", "a" + "\u0301" * 200)),
    # Too much of something.
    "one-byte-too-large": _bytes(GOOD.encode() + b"#" * (LARGEST_BYTES + 1 - len(GOOD.encode()))),
    "long-value": _text(changed("acme", "a" * 100_000)),
    "long-key": _text(changed("vision:", f"? {'v' * 100_000}\n      :")),
    "long-unknown-setting": _text(changed("nodes: 2", f'nodes: 2, "{"n" * 900}": 1')),
    "long-number": _text(changed("nodes: 2", f"nodes: {'9' * 100_000}")),
    "long-fraction": _text(changed("nodes: 2", f"nodes: 0.{'3' * 100_000}")),
    "long-duration": _text(changed("priority: 10", f"max_wait: {'1m' * 50_000}, priority: 10")),
    "long-list": _text(changed("[spot]", f"[{', '.join(['spto'] * 5)}]")),
    "huge-exponent": _text(changed("nodes: 2", "nodes: 1e999999999")),
    "exponent-for-a-number": _text(changed("nodes: 2", "nodes: 1e6")),
    "huge-amount": _text(changed("200 USD", "1e400")),
    "laughs": _text(changed("    burst:", "    " + _doubling(9).replace("\n", "\n    ").rstrip(" ") + "    burst:")),
    "merge-bomb": _text(
        changed(
            "    burst:\n",
            "    m:\n      m0: &m0 {a: 1}\n"
            + "".join(f"      m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 9)}]}}\n" for n in range(1, 12))
            + "    burst:\n",
        )
    ),
    "nested-by-aliases": _text(_nested_by_aliases(150)),
    "deep-lists": _text(changed("[spot]", "[" * 300 + "spot" + "]" * 300)),
    "deep-mappings": _text(changed("acme", "{a: " * 300 + "acme" + "}" * 300)),
    "deep-block": _text("".join(" " * depth + "a:\n" for depth in range(300))),
    "brackets-without-end": _text("[" * 1_000_000),
    "many-documents": _text("---\na: 1\n" * 10_000),
    "many-unknown-settings": _text(changed("    burst:", "    wrong_1: 1\n    wrong_2: 2\n    wrong_3: 3\n    burst:")),
    "thousand-pools": _text(many_pools(1_000, "nodes: none, usd_per_gpu_hour: 1")),
    "ten-thousand-pools": _text(many_pools(10_000, "nodez: 1, usd_per_gpu_hour: 1")),
    # The same in the teams' own file.
    "teams-missing": _teams_elsewhere(_nothing),
    "teams-pipe": _teams_elsewhere(lambda path: os.mkfifo(path)),
    "teams-junk": _teams_elsewhere(_bytes(b"\x00\xff\x00\xff")),
    "teams-windows-line-ends": _teams_elsewhere(_bytes(b"teams:\r\n  vision: {quota: 7}\r\n")),
    "teams-laughs": _teams_elsewhere(_text("teams:\n" + _doubling(9))),
}
