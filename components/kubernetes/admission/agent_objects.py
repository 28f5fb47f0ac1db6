"""What the agent may change of objects that Pulumi made for it: when a window queue starts jobs, and a forecast."""

from __future__ import annotations

from components.kubernetes.admission.agent import (
    OLD_AND_NEW,
    fields_unchanged_but,
    metadata_unchanged_but,
    only_updates,
    unless_create,
)
from components.kubernetes.admission.expressions import (
    IS_AGENT,
    WRITES,
    Spec,
    in_window,
    kueue_rules,
    rules,
    variables,
)
from stacks.labels import FORECAST_NAME


def local_queues() -> Spec:
    """A LocalQueue of a class with a window: whether it starts jobs now; what runs is left alone."""
    return {
        "matchConstraints": kueue_rules("localqueues", WRITES),
        "matchConditions": [IS_AGENT],
        "variables": variables(**OLD_AND_NEW),
        "validations": [
            only_updates("local queues"),
            {
                "expression": f"oldObject == null || {in_window('oldObject.metadata.name')}",
                "message": "the agent may hold only the queues of classes with a window",
            },
            unless_create(
                f"{fields_unchanged_but('spec', ['stopPolicy'])} && {metadata_unchanged_but()}",
                "the agent may change only stopPolicy of a local queue",
            ),
            unless_create(
                "object.spec.?stopPolicy.orValue('None') in ['None', 'Hold']",
                "the agent holds a queue or lets it go; HoldAndDrain would stop what runs",
            ),
        ],
    }


def config_maps() -> Spec:
    """A team's forecast, and no other ConfigMap."""
    return {
        "matchConstraints": rules(("", ["configmaps"]), operations=WRITES),
        "matchConditions": [IS_AGENT],
        "variables": variables(**OLD_AND_NEW),
        "validations": [
            only_updates("config maps"),
            {
                "expression": f"oldObject == null || oldObject.metadata.name == '{FORECAST_NAME}'",
                "message": f"the agent may write no config map but {FORECAST_NAME}",
            },
            unless_create(
                "variables.new.all(k, v, k in ['data', 'metadata'] || variables.old[?k] == optional.of(v))"
                " && variables.old.all(k, v, k in ['data', 'metadata'] || k in variables.new)"
                f" && {metadata_unchanged_but()}",
                "the agent may change only the data of a config map",
            ),
        ],
    }
