"""Which branch of a union was meant, where no setting says so, and what is said when none was.

Pydantic reports the errors of every branch. Only those of the branch that the settings in the file belong to are kept;
where they belong to none, or to several, that is said instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stacks.reading.echo import with_value
from stacks.reading.messages import Said, unknown_setting
from stacks.reading.trail import Choice, openings_of, settings_of
from stacks.suggest import nearest


def meant(choices: Sequence[Choice], errors: Mapping[str, int], given: Any) -> str | list[Said]:
    """The label of the branch that was meant, or what to say instead; `errors` counts those of each branch."""
    if not all(choice.model for choice in choices):
        return min(errors, key=lambda label: errors[label])
    path = choices[0].path
    known = {choice.label: settings_of([choice.model]) for choice in choices}
    everything = tuple(dict.fromkeys(name for names in known.values() for name in names))
    openings = openings_of([choice.model for choice in choices])
    if not isinstance(given, dict):
        examples = " or ".join(f"{{{name}: …}}" for name in openings)
        return [Said(path, "wrong-type", with_value(f"must be a mapping of settings, for example {examples}", given))]
    if not given:
        return [Said(path, "missing-setting", f"needs {' or '.join(openings)}")]

    def fit(label: str) -> tuple[int, int]:
        strange = [key for key in given if key not in known[label]]
        return len(given) - len(strange), sum(bool(nearest(key, known[label])) for key in strange)

    best = max(known, key=fit)
    if fit(best) == (0, 0):
        return [Said((*path, key), "unknown-setting", unknown_setting(key, everything, ())) for key in given]
    if any(key in everything and key not in known[best] for key in given):
        both = [name for name in everything if name in given]
        return [Said(path, "bad-value", f"give either {' or '.join(both)}, not both")]
    return best
