"""The burst rule of a first file, with the link and the projects that a deployed agent is told.

Nothing can be spent before a person has set a budget.
"""

from __future__ import annotations

from typing import Any, Final

from infra.discovery.answers import Answers
from infra.discovery.findings import Part
from infra.discovery.prices import FREE, usd_text
from infra.discovery.queues import budget_settings, usual_runtime
from stacks.agent_config import AgentConfig
from stacks.flavors import flavor_name
from stacks.pools import CloudPool
from stacks.quantities import format_duration, format_rate

_DATA_LINK: Final = "data"


def burst_part(models: dict[str, Any], answers: Answers, deployed: AgentConfig | None) -> Part:
    """The burst rule: cheapest pool first, and no spending before a budget is set."""
    cloud: dict[str, Any] = {name: model for name, model in models.items() if isinstance(model, CloudPool)}
    order = sorted(cloud, key=lambda name: (cloud[name].price, name))
    settings: dict[str, Any] = {}
    notes = {"order": "the cheapest first"}
    if deployed is not None:
        places = {flavor: place for place, flavor in enumerate(deployed.burst_order)}
        order = sorted(order, key=lambda name: places.get(flavor_name(cloud[name]), len(places)))
        settings["policy"] = deployed.policy.model_dump(mode="json")
        settings["expected_runtime"] = format_duration(usual_runtime(deployed))
        notes = {"policy": "as the gpufleet agent is told"}
    settings["order"] = order
    if answers.monthly_budget is not None:
        settings["budget"] = {"monthly": usd_text(answers.monthly_budget), "kind": "hard"}
    elif deployed is None:
        settings["budget"] = {"monthly": FREE, "kind": "hard"}
        notes["budget"] = "REVIEW: nothing is spent on the cloud until you raise it"
    elif deployed.budget is not None:
        settings["budget"] = budget_settings(deployed.budget)
    if deployed is not None and deployed.data is not None:
        told = deployed.data.model_dump(mode="json", exclude={"bandwidth"}, exclude_none=True)
        settings["data"] = {"link": _DATA_LINK, **told}
    return Part("burst", settings, notes)


def link_parts(deployed: AgentConfig | None, answers: Answers) -> tuple[Part, ...]:
    """The link that data crosses, of which the agent knows the bandwidth alone."""
    if deployed is None or deployed.data is None:
        return ()
    bandwidth = format_rate(deployed.data.bandwidth)
    settings = {"kind": "existing", "cluster": answers.cluster, "bandwidth": bandwidth}
    return (Part(_DATA_LINK, settings, {"bandwidth": "as the gpufleet agent is told"}),)


def project_parts(deployed: AgentConfig | None, teams: set[str]) -> tuple[Part, ...]:
    """The projects that the agent is told, for the teams that are there; one that has none left has no jobs either."""
    parts = []
    for name, told in deployed.projects.items() if deployed else ():
        named = [team for team in told.teams or () if team in teams]
        if named or told.teams is None:
            settings: dict[str, Any] = {"teams": named} if named else {}
            parts.append(Part(name, {**settings, "budget": budget_settings(told.budget)}))
    return tuple(parts)
