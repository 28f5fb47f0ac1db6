"""What the agent may change of what is neither job nor Workload: windows, forecasts, what it tells pods and nodes."""

from __future__ import annotations

from typing import Final

from components.kubernetes.admission.agent import (
    OLD_AND_NEW,
    fields_unchanged_but,
    map_unchanged_but,
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
    label_before_and_after,
    rules,
    variables,
)
from stacks.labels import (
    AGENT_DRAIN_TAINT,
    CHECKPOINT_ANSWER_ANNOTATION,
    CHECKPOINT_REQUEST_ANNOTATION,
    CLEARED_ANNOTATION,
    FORECAST_NAME,
    MANAGED_LABEL,
    MIG_STATE_LABEL,
    RELAYOUT_ANNOTATION,
)
from stacks.layouts import MIG_CONFIG_LABEL

_STATE_STAYS: Final = (
    f"object.metadata.?labels[?'{MIG_STATE_LABEL}'] == oldObject.metadata.?labels[?'{MIG_STATE_LABEL}']"
)


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


def pods() -> Spec:
    """A pod of a team: the wish that it saves its work, what its hook answered; or its eviction.

    An eviction says which pod, and neither what the pod asks for nor whose it is: that only pods with GPUs which Kueue
    does not own are evicted is the agent's own promise.
    """
    is_eviction = "request.operation == 'CREATE' && request.?subResource.orValue('') == 'eviction'"
    return {
        "matchConstraints": rules(("", ["pods", "pods/*"]), operations=WRITES),
        "matchConditions": [IS_AGENT],
        "variables": variables(**OLD_AND_NEW),
        "validations": [
            {
                "expression": "(request.operation == 'UPDATE' && request.?subResource.orValue('') == '')"
                f" || ({is_eviction})",
                "message": "the agent may only annotate pods, and evict them",
            },
            {
                "expression": f"namespaceObject.metadata.?labels[?'{MANAGED_LABEL}'].orValue('') == 'true'",
                "message": "the agent touches pods in the namespaces of teams only",
            },
            unless_create(
                "variables.new.?spec == variables.old.?spec && variables.new.?status == variables.old.?status"
                f" && {metadata_unchanged_but('annotations')}",
                "the agent may change nothing of a pod but an annotation",
            ),
            unless_create(
                map_unchanged_but("annotations", [CHECKPOINT_REQUEST_ANNOTATION, CHECKPOINT_ANSWER_ANNOTATION]),
                f"the agent may write no annotation of a pod but {CHECKPOINT_REQUEST_ANNOTATION} "
                f"and {CHECKPOINT_ANSWER_ANNOTATION}",
            ),
            {
                "expression": f"!({is_eviction}) || variables.new.?deleteOptions.?preconditions.?uid.orValue('') != ''",
                "message": "an eviction by the agent names the pod's uid in its preconditions, so that no other pod "
                "of the same name is hit",
            },
        ],
    }


def nodes() -> Spec:
    """A node: for which of its notices nothing of ours is left there, that it is to be emptied, and its MIG layout.

    Administrators have a taint of their own for the second, which stays. The layout is the agent's to change only while
    it holds the node empty, and what the MIG manager says of it the agent may only take away, together with that.
    """
    ours = f"t.key == '{AGENT_DRAIN_TAINT}'"
    before_and_after = {
        "taints": "variables.new.?spec.?taints.orValue([])",
        "oldTaints": "variables.old.?spec.?taints.orValue([])",
        **label_before_and_after(MIG_CONFIG_LABEL, "layout"),
    }
    return {
        "matchConstraints": rules(("", ["nodes", "nodes/*"]), operations=WRITES),
        "matchConditions": [IS_AGENT],
        "variables": variables(**OLD_AND_NEW, **before_and_after),
        "validations": [
            only_updates("nodes"),
            unless_create(
                f"{fields_unchanged_but('spec', ['taints'])} && variables.new.?status == variables.old.?status"
                f" && {metadata_unchanged_but('annotations', 'labels')}",
                "the agent may change nothing of a node but an annotation, a taint and a label",
            ),
            unless_create(
                f"variables.taints.all(t, ({ours} && t.effect == 'NoSchedule') || t in variables.oldTaints)"
                f" && variables.oldTaints.all(t, {ours} || t in variables.taints)",
                f"the agent may set and take away no taint but {AGENT_DRAIN_TAINT}:NoSchedule",
            ),
            unless_create(
                map_unchanged_but("annotations", [CLEARED_ANNOTATION, RELAYOUT_ANNOTATION]),
                f"the agent may write no annotation of a node but {CLEARED_ANNOTATION} and {RELAYOUT_ANNOTATION}",
            ),
            unless_create(
                map_unchanged_but("labels", [MIG_CONFIG_LABEL], [MIG_STATE_LABEL]),
                f"the agent may write no label of a node but {MIG_CONFIG_LABEL}, and remove none but {MIG_STATE_LABEL}",
            ),
            unless_create(
                f"variables.layout == variables.oldLayout ? {_STATE_STAYS} : (variables.layout != ''"
                f" && [variables.taints, variables.oldTaints].all(some, some.exists(t, {ours})))",
                f"the agent may change {MIG_CONFIG_LABEL}, and remove {MIG_STATE_LABEL} with that, only on a node that "
                f"it holds empty by {AGENT_DRAIN_TAINT}",
            ),
        ],
    }
