"""How far the eviction of a job has come, as its objects on the real control plane show it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from runtime.eviction.marker import answer_to_json, asked_in, marker_from_json
from runtime.eviction.view import Answer, Marker, Phase
from stacks.labels import CHECKPOINT_ANSWER_ANNOTATION, CHECKPOINT_REQUEST_ANNOTATION, EVICTION_ANNOTATION
from tests.conftest import ROOT
from tests.e2e.conftest import Stack

LOCAL, SPOT = "h100-onprem", "h100-aws-spot"
MERGE = "application/merge-patch+json"


def pods(stack: Stack, team: str, job: str) -> list[dict[str, Any]]:
    """The pods of a job, those that are about to go among them."""
    items, _ = stack.kube.list("v1", "Pod", team)
    return [pod for pod in items if pod["metadata"]["ownerReferences"][0]["name"] == job]


def node_of(stack: Stack, team: str, job: str) -> str | None:
    """Where the first pod of a job is that stays."""
    staying = (pod for pod in pods(stack, team, job) if "deletionTimestamp" not in pod["metadata"])
    return next((str(pod["spec"]["nodeName"]) for pod in staying if pod["spec"].get("nodeName")), None)


def marker(stack: Stack, team: str, job: str) -> Marker | None:
    """What its Workload says of its eviction."""
    text = stack.workload(team, job)["metadata"].get("annotations", {}).get(EVICTION_ANNOTATION)
    return marker_from_json(text) if text else None


def phase(stack: Stack, team: str, job: str) -> Phase | None:
    """How far it has come."""
    found = marker(stack, team, job)
    return None if found is None else found.phase


def requests(stack: Stack, team: str, job: str) -> dict[str, str]:
    """The requests to save that pods of a job are shown, by pod; pods that are shown none are left out."""
    shown = {
        pod["metadata"]["name"]: pod["metadata"].get("annotations", {}).get(CHECKPOINT_REQUEST_ANNOTATION)
        for pod in pods(stack, team, job)
    }
    return {name: asked_in(text) for name, text in shown.items() if text}


def answer(stack: Stack, team: str, job: str, step: int) -> None:
    """Answer for every pod of a job that is asked, as it would itself."""
    for name, request in requests(stack, team, job).items():
        said = Answer(request, step, f"s3://checkpoints/{step}", time.time())
        body = {"metadata": {"annotations": {CHECKPOINT_ANSWER_ANNOTATION: answer_to_json(said)}}}
        stack.kube.request("PATCH", stack.kube.path("v1", "Pod", name, team), body, content_type=MERGE)


def gpufleet(stack: Stack, *arguments: str) -> Any:
    """What a command of the command line prints for programs."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name("gpufleet")), *arguments, "--json"],
        cwd=ROOT,
        env={**os.environ, "KUBECONFIG": str(stack.plane.kubeconfig)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def failures(stack: Stack, team: str, job: str) -> int:
    """How many of its `backoffLimit` a job has spent."""
    return int(stack.kube.get("batch/v1", "Job", job, team).get("status", {}).get("failed") or 0)


def attempts(stack: Stack, uid: str) -> int:
    """How often a job was let into the cloud."""
    return len([one for one in stack.ledger()[0] if one.attempt.workload_uid == uid])
