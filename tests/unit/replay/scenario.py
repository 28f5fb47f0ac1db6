"""Writes audit logs by hand: one method per thing that can happen to a job, in the words of the API server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from infra.replay.audit import AGENT_USER, AuditReport, facts
from infra.replay.histories import Histories, histories_of
from stacks.fleet import Fleet
from stacks.labels import FLAVOR_LABEL, GATE_NAME, GPU_RESOURCE, QUEUE_LABEL, VERDICT_ANNOTATION, burst_queue
from stacks.load import load_file

KUEUE = "system:serviceaccount:kueue-system:kueue-controller-manager"
JOB_CONTROLLER = "system:kube-controller-manager"
USER = "alice"
SPOT, ON_DEMAND, LOCAL = "h100-aws-spot", "h100-aws-on-demand", "h100-onprem"
START = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()
ROOT = Path(__file__).parents[3]


def local_fleet() -> Fleet:
    return load_file(ROOT / "tests" / "unit" / "replay" / "fleet.yaml")


def micro(at: float) -> str:
    return datetime.fromtimestamp(START + at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def second(at: float) -> str:
    return datetime.fromtimestamp(int(START + at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class Log:
    """An audit log in the making; times are seconds from START."""

    lines: list[str] = field(default_factory=list)
    version: int = 100

    def write(
        self,
        at: float,
        user: str,
        verb: str,
        reference: Mapping[str, str],
        *,
        request: object = None,
        response: object = None,
        code: int = 200,
        impersonated: str | None = None,
        stage: str = "ResponseComplete",
    ) -> None:
        event: dict[str, Any] = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "stage": stage,
            "verb": verb,
            "user": {"username": user},
            "objectRef": dict(reference),
            "responseStatus": {"metadata": {}, "code": code},
            "requestReceivedTimestamp": micro(at),
            "stageTimestamp": micro(at + 0.01),
        }
        if request is not None:
            event["requestObject"] = request
        if response is not None:
            event["responseObject"] = response
        if impersonated:
            event["impersonatedUser"] = {"username": impersonated}
        self.lines.append(json.dumps(event) + "\n")

    def histories(self, fleet: Fleet | None = None) -> Histories:
        return histories_of(facts(self.lines, AuditReport()), fleet or local_fleet())


@dataclass
class Job:
    """One job and its Workload, as the API server holds them."""

    log: Log
    name: str = "train-r1"
    team: str = "vision"
    gpus: int = 4
    priority: int = 100
    job_class: str = "p1"
    expected: str | None = None
    created: float = 0.0
    queue: str = ""
    status: dict[str, Any] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    active: bool = True

    @property
    def uid(self) -> str:
        return f"uid-{self.name}"

    def submitted(self, at: float = 0.0) -> Job:
        self.created, self.queue = at, self.team
        labels = {"metadata": {"name": self.name, "labels": {QUEUE_LABEL: self.team}}}
        self.log.write(at, USER, "create", self._job(), request=labels, code=201)
        self._workload(at, KUEUE, "create", code=201)
        return self

    def released(self, at: float, user: str = AGENT_USER, *, target: str = SPOT, told: bool = True, **more: Any) -> Job:
        """Moved to the twin of a flavor, with or without the agent's verdict."""
        if told:
            self.said(at, "released", target=target)
        return self.moved(at, burst_queue(self.team, target), user, **more)

    def moved(self, at: float, queue: str, user: str = AGENT_USER, **more: Any) -> Job:
        self.queue = queue
        patch = {"metadata": {"labels": {QUEUE_LABEL: queue}}}
        self.log.write(at, user, "patch", self._job(), request=patch, **more)
        self._workload(at + 0.02, KUEUE, "update")
        return self

    def said(self, at: float, code: str, user: str = AGENT_USER, answer: int = 200, **facts_: object) -> Job:
        entry = {"code": code, "at": at, "decision": "d1", "facts": facts_}
        self.annotations[VERDICT_ANNOTATION] = json.dumps(entry)
        request = {"metadata": {"annotations": {VERDICT_ANNOTATION: json.dumps(entry)}}}
        self._workload(at, user, "patch", request=request, code=answer)
        return self

    def reserved(self, at: float, flavor: str) -> Job:
        usage = {"flavors": {GPU_RESOURCE: flavor}, "resourceUsage": {GPU_RESOURCE: str(self.gpus)}, "count": 1}
        self.status["admission"] = {"clusterQueue": self.queue, "podSetAssignments": [{"name": "main", **usage}]}
        self._condition("QuotaReserved", True, at)
        if flavor != LOCAL:
            self.status["admissionChecks"] = [{"name": GATE_NAME, "state": "Pending", "message": ""}]
        self._workload(at, KUEUE, "patch", "status")
        return self

    def ready(self, at: float, user: str = AGENT_USER, **more: Any) -> Job:
        check = {"name": GATE_NAME, "state": "Ready", "message": "ok", "lastTransitionTime": second(at)}
        self.status["admissionChecks"] = [check]
        metadata = {"resourceVersion": str(self.log.version)}
        request = {"metadata": metadata, "status": {"admissionChecks": [check]}}
        self._workload(at, user, "patch", "status", request=request, **more)
        return self

    def admitted(self, at: float) -> Job:
        self._condition("Admitted", True, at)
        self._workload(at, KUEUE, "patch", "status", request={"status": self.status})
        return self

    def evicted(self, at: float) -> Job:
        self._condition("QuotaReserved", False, at)
        self._condition("Admitted", False, at)
        self._condition("Evicted", True, at)
        self.status.pop("admission", None)
        for check in self.status.get("admissionChecks", []):
            check["state"] = "Pending"
        self._workload(at, KUEUE, "patch", "status")
        return self

    def finished(self, at: float, reason: str = "Succeeded") -> Job:
        self._condition("Finished", True, at, reason)
        self._workload(at, KUEUE, "patch", "status")
        return self

    def pod(self, at: float, flavor: str | None, node: str = "rack-0") -> Job:
        owner = {"kind": "Job", "name": self.name, "uid": self.uid, "controller": True}
        spec: dict[str, Any] = {"nodeSelector": {FLAVOR_LABEL: flavor}} if flavor else {}
        pod = {"metadata": {"generateName": f"{self.name}-0-", "ownerReferences": [owner]}, "spec": spec}
        namespace = {"resource": "pods", "namespace": self.team, "apiVersion": "v1"}
        self.log.write(at, JOB_CONTROLLER, "create", namespace, request=pod, code=201)
        binding = {"target": {"kind": "Node", "name": node}}
        reference = {**namespace, "name": f"{self.name}-0-abcde", "subresource": "binding"}
        self.log.write(at + 0.05, "system:kube-scheduler", "create", reference, request=binding, code=201)
        return self

    def stopped(self, at: float) -> Job:
        self.active = False
        self._workload(at, KUEUE, "update")
        return self

    def deleted(self, at: float) -> Job:
        self.log.write(at, USER, "delete", self._reference())
        return self

    def burst(self, at: float, flavor: str = SPOT) -> Job:
        """The whole lawful way from release to a pod, half a second long."""
        self.released(at, target=flavor).reserved(at + 0.1, flavor).ready(at + 0.2).admitted(at + 0.3)
        return self.pod(at + 0.4, flavor, "spot-0")

    def local(self, at: float) -> Job:
        return self.reserved(at, LOCAL).admitted(at + 0.05).pod(at + 0.1, LOCAL)

    def raw(self) -> dict[str, Any]:
        template: dict[str, Any] = {
            "metadata": {"annotations": {"gpufleet.dev/expected-runtime": self.expected} if self.expected else {}},
            "spec": {"containers": [{"resources": {"limits": {GPU_RESOURCE: str(self.gpus)}}}]},
        }
        return {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {
                "uid": f"wl-{self.name}",
                "name": f"job-{self.name}",
                "namespace": self.team,
                "creationTimestamp": second(self.created),
                "resourceVersion": str(self.log.version),
                "annotations": dict(self.annotations),
                "ownerReferences": [{"kind": "Job", "name": self.name, "uid": self.uid, "controller": True}],
            },
            "spec": {
                "queueName": self.queue,
                "priority": self.priority,
                "priorityClassRef": {
                    "group": "kueue.x-k8s.io",
                    "kind": "WorkloadPriorityClass",
                    "name": self.job_class,
                },
                "active": self.active,
                "podSets": [{"name": "main", "count": 1, "template": template}],
            },
            "status": json.loads(json.dumps(self.status)),
        }

    def _condition(self, kind: str, value: bool, at: float, reason: str = "Because") -> None:
        kept = [one for one in self.status.get("conditions", []) if one["type"] != kind]
        new = {"type": kind, "status": str(value), "reason": reason, "lastTransitionTime": second(at)}
        self.status["conditions"] = [*kept, new]

    def _workload(
        self, at: float, user: str, verb: str, subresource: str = "", *, request: object = None, **more: Any
    ) -> None:
        self.log.version += 1
        reference = self._reference() | ({"subresource": subresource} if subresource else {})
        self.log.write(at, user, verb, reference, request=request or {}, response=self.raw(), **more)

    def _reference(self) -> dict[str, str]:
        return {
            "apiGroup": "kueue.x-k8s.io",
            "resource": "workloads",
            "namespace": self.team,
            "name": f"job-{self.name}",
        }

    def _job(self) -> dict[str, str]:
        return {"apiGroup": "batch", "resource": "jobs", "namespace": self.team, "name": self.name}
