"""Prices of pools, and whether the file can hold them.

A price is never invented: it is what a gpufleet agent was told, what a person says, or a list price of the catalogue.
GPUs of one's own whose price nobody knows cost 0, which only shows in reports; rented ones are refused.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import ROUND_DOWN, Decimal
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from infra.discovery.answers import Answers
from infra.discovery.findings import Part
from infra.discovery.objects import some
from stacks.agent_config import AgentConfig
from stacks.flavors import flavor_name
from stacks.fleet import Fleet
from stacks.pools import CloudPool, InstancePool, OnPremPool, Pool
from stacks.quantities import format_usd
from stacks.reading.messages import describe
from stacks.reading.trail import follow

_POOL: Final[TypeAdapter[Any]] = TypeAdapter(Pool)
_ANY_PRICE: Final = "1 USD"  # to see what else is wrong with a pool, and which flavor it is
_CENTS: Final = Decimal("0.0001")  # a list price divided by GPUs may have no end
FREE: Final = "0 USD"


def validated(part: Part) -> Any:
    """The pool's model.

    Raises:
        ValueError: the file cannot hold the pool; with the validators' reasons.
    """
    try:
        model = _POOL.validate_python(dict(part.settings))
    except ValidationError as error:
        raise ValueError("; ".join(_reason(one, part) for one in error.errors())) from None
    if isinstance(model, InstancePool) and model.unlisted_types:
        where = model.region or "an unknown region"
        raise ValueError(f"usd_per_gpu_hour: no list price of {some(list(model.unlisted_types))} in {where}")
    return model


def _reason(error: ErrorDetails, part: Part) -> str:
    """One thing that is wrong with a pool, by its setting; rules on several settings say themselves which they mean."""
    if error["type"] == "value_error":
        said = error["msg"].removeprefix("Value error, ")
        setting = error["loc"][-1] if error["loc"] else None
        return f"{setting}: {said}" if setting in part.settings else said
    trail = follow(Fleet, ("pools", "one", *error["loc"]))
    return f"{error['loc'][-1]}: {describe(error, trail)[1]}"


def priced(found: Part, answers: Answers, deployed: AgentConfig | None) -> Part:
    """The pool with its price, or as it is where its list price is known or none is."""
    try:
        model = validated(with_setting(found, "usd_per_gpu_hour", _ANY_PRICE, ""))
    except ValueError:
        return found
    told = deployed.flavors.get(flavor_name(model)) if deployed else None
    if told is not None and (told.usd_per_gpu_hour or isinstance(model, OnPremPool)):
        return with_setting(found, "usd_per_gpu_hour", usd_text(told.usd_per_gpu_hour), "as the gpufleet agent is told")
    if isinstance(model, OnPremPool):
        if answers.usd_per_gpu_hour is not None:
            return with_setting(
                found, "usd_per_gpu_hour", usd_text(answers.usd_per_gpu_hour), "as --usd-per-gpu-hour says"
            )
        return with_setting(
            found, "usd_per_gpu_hour", FREE, "REVIEW: no cluster knows it; reports show 0 until you set it"
        )
    listed = _list_price(model)
    if answers.cloud_usd_per_gpu_hour is not None:
        return with_setting(
            found, "usd_per_gpu_hour", usd_text(answers.cloud_usd_per_gpu_hour), "as --cloud-usd-per-gpu-hour says"
        )
    if listed is not None and model.market == "spot":
        note = "REVIEW: the most you will pay; this is the on-demand list price"
        return with_setting(found, "usd_per_gpu_hour", usd_text(listed), note)
    if listed is not None:
        price = f"List price of a GPU-hour in {model.region}: {format_usd(listed)}."
        return replace(found, remarks=(*found.remarks, price))
    return found


def _list_price(model: CloudPool) -> Decimal | None:
    """The dearest on-demand list price of a GPU-hour among the types; None where one is not known."""
    if not isinstance(model, InstancePool) or model.unknown_types or model.region is None:
        return None
    prices = [one.usd_per_gpu_hour(model.region) for one in model.known_types]
    known = [price for price in prices if price is not None]
    return max(known).quantize(_CENTS, ROUND_DOWN) if known and len(known) == len(prices) else None


def with_setting(part: Part, setting: str, value: Any, note: str) -> Part:
    """The part with one more setting, and a note on it if there is something to say."""
    notes = {**part.notes, setting: note} if note else part.notes
    return replace(part, settings={**part.settings, setting: value}, notes=notes)


def usd_text(amount: Decimal) -> str:
    """The amount as the file has it."""
    return f"{amount.normalize():f} USD"
