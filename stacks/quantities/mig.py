"""MIG profiles and the items of a MIG layout: `3g.20gb`, `1g.5gb+me`, `7x1g.5gb`.

Only the form is checked; which profiles a GPU has, and which of them fit beside each other, is a question for the
catalogue. The canonical name is NVIDIA's; the device plugin's resource names (`nvidia.com/mig-1g.5gb.me`) are read too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import PlainSerializer, PlainValidator

from stacks.quantities.text import text_of, text_schema

_PREFIX: Final = re.compile(r"(?:nvidia\.com/)?mig[-\s]*", re.IGNORECASE)
_PROFILE: Final = re.compile(r"([1-9])g\.?([1-9][0-9]{0,2})gb(?:([+.-])(me\.all|me|gfx))?")
_COMPUTE_PROFILE: Final = re.compile(r"[1-9]c\.[1-9]g\..*")
_ITEM: Final = re.compile(r"(?:([0-9]{1,3})\s*[x×*]\s*)?(\S.*)", re.IGNORECASE | re.DOTALL)
_HELP: Final = "write slices and memory, for example 3g.20gb, 1g.5gb or 1g.5gb+me"
_PROFILE_PATTERN: Final = (
    r"([Nn][Vv][Ii][Dd][Ii][Aa]\.com/)?([Mm][Ii][Gg][-\s]*)?[1-9]\s*[gG]\s*\.?\s*[1-9][0-9]{0,2}\s*[gG][bB]\S*"
)


@dataclass(frozen=True, slots=True, order=True)
class MigProfiles:
    """Some MIG devices of one profile."""

    count: int
    profile: str

    def __str__(self) -> str:
        return self.profile if self.count == 1 else f"{self.count}x{self.profile}"


def parse_mig_profile_name(value: object) -> str:
    """Read `3g.20gb`, `MIG 3g.20gb`, `3g20gb` or `nvidia.com/mig-3g.20gb`; the result is NVIDIA's name.

    Raises:
        ValueError: for text of another form, and for a compute instance such as 1c.3g.20gb.
    """
    text = text_of(value, "a MIG profile", "3g.20gb")
    bare = re.sub(r"\s+", "", _PREFIX.sub("", text, count=1) if _PREFIX.match(text) else text).lower()
    if _COMPUTE_PROFILE.fullmatch(bare):
        raise ValueError(
            "names a compute instance inside a MIG device, which the device plugin does not offer to pods; "
            f"name the whole device, for example {bare.partition('.')[2]}"
        )
    match = _PROFILE.fullmatch(bare)
    if not match:
        raise ValueError(f"not a MIG profile; {_HELP}")
    slices, gigabytes, joint, attribute = match.groups()
    # `-me` is a name of its own (without media engines); the dot is how resource names write the plus.
    suffix = "" if attribute is None else f"{'-' if joint == '-' else '+'}{attribute}"
    return f"{slices}g.{gigabytes}gb{suffix}"


def parse_mig_item(value: object) -> MigProfiles:
    """Read a profile, or several of one: `1g.5gb`, `7x1g.5gb`, `7 x 1g.5gb`.

    Raises:
        ValueError: for a count of zero, and as parse_mig_profile_name.
    """
    if isinstance(value, MigProfiles):
        return value
    match = _ITEM.fullmatch(text_of(value, "a MIG profile with or without a count", "7x1g.5gb"))
    if not match:
        raise ValueError("names no MIG profile; write it like 3g.20gb or 7x1g.5gb")
    count = int(match.group(1) or 1)
    if count < 1:
        raise ValueError("the count must be at least 1, for example 7x1g.5gb")
    return MigProfiles(count, parse_mig_profile_name(match.group(2)))


MigItem = Annotated[
    MigProfiles,
    PlainValidator(parse_mig_item),
    PlainSerializer(str, return_type=str),
    text_schema(
        "A MIG profile, with a count where several are meant.",
        ["3g.20gb", "7x1g.5gb"],
        rf"^\s*([0-9]{{1,3}}\s*[xX×*]\s*)?{_PROFILE_PATTERN}\s*$",
    ),
]
"""MIG devices of one profile; canonical form `7x1g.5gb`, or `1g.5gb` for one."""
