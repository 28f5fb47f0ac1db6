"""Machines that come and go on the real control plane, and jobs that save: what a storm of evictions is made of.

KWOK plays nodes and pods. Here are the cloud, which says notices as the node agent writes them and takes machines away
with all that runs there, and the training code of the jobs that honour the checkpoint contract. Neither knows anything
of the agent. Whatever the storm did to nodes is undone at its end.
"""

from __future__ import annotations

import heapq
import json
import random
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from infra.chaos.nodes import as_created, noticed, taken_back
from infra.chaos.terms import SOURCE
from infra.local.errors import KubeError
from infra.local.kubeclient import KubeClient
from runtime.eviction.marker import answer_from_json, answer_to_json, asked_in
from runtime.eviction.notice import Certainty, Notice, NoticeKind
from runtime.eviction.view import Answer
from stacks.labels import CHECKPOINT_ANSWER_ANNOTATION, CHECKPOINT_REQUEST_ANNOTATION, NOTICES_ANNOTATION
from tests.e2e.evicting import MERGE

AWAY_SECONDS: Final = 3.0
"""From the end of a machine until another comes under its name."""

PERIOD_SECONDS: Final = 10.0
"""Between two checkpoints of a job that honours the contract, if nobody asks it for one."""

TURN_SECONDS: Final = 0.3
_TRIES: Final = 10


def pods_of_node(kube: KubeClient, node: str) -> list[dict[str, Any]]:
    """Every pod that is bound to a node."""
    found = kube.request("GET", "/api/v1/pods", parameters={"fieldSelector": f"spec.nodeName={node}"})
    return list(found["items"])


class Cloud:
    """The machines. What it does later it does when it is asked to wait."""

    def __init__(self, kube: KubeClient) -> None:
        self._kube = kube
        self._before = {node["metadata"]["name"]: as_created(node) for node in kube.list("v1", "Node")[0]}
        self._due: list[tuple[float, str, str]] = []
        self._said = 0
        self.losses = 0

    @property
    def going(self) -> set[str]:
        """The nodes that are under notice or away."""
        return {name for _, _, name in self._due}

    def say(self, node: str, seconds: float, kind: NoticeKind = NoticeKind.SPOT, *, ends: bool = True) -> str:
        """Say a notice on a node, and take the machine away at its deadline; returns the notice's id."""
        now = time.time()
        self._said += 1
        certainty = Certainty.LIKELY if kind is NoticeKind.REBALANCE else Certainty.CERTAIN
        notice = Notice(f"{kind.value}-{self._said}", kind, SOURCE, certainty, now, now + seconds)
        for _ in range(_TRIES):
            try:
                live = self._kube.get("v1", "Node", node)
                self._patch(node, noticed(live, notice))
                break
            except KubeError as error:
                if error.status != 409:
                    raise
        if ends:
            heapq.heappush(self._due, (now + seconds, "lose", node))
        return notice.id

    def cancel(self, node: str) -> None:
        """Take every notice on a node back, as the provider does who needs the machine no more."""
        self._due = [one for one in self._due if one[2] != node]
        heapq.heapify(self._due)
        for _ in range(_TRIES):
            live = self._kube.get("v1", "Node", node)
            ids = [
                one["id"] for one in json.loads(live["metadata"].get("annotations", {}).get(NOTICES_ANNOTATION, "[]"))
            ]
            patch = taken_back(live, ids)
            if patch is None:
                return
            try:
                self._patch(node, patch)
            except KubeError as error:
                if error.status != 409:
                    raise
            else:
                return

    def wait(self, seconds: float) -> None:
        """Let time pass, with all that it brings."""
        until = time.time() + seconds
        while True:
            now = time.time()
            while self._due and self._due[0][0] <= now:
                _, what, node = heapq.heappop(self._due)
                self._lose(node) if what == "lose" else self._come_back(node)
            if now >= until:
                return
            time.sleep(min(0.2, until - now))

    def calm(self) -> None:
        """Let every machine that is under notice go and come back."""
        while self._due:
            self.wait(max(0.2, min(1.0, self._due[0][0] - time.time())))

    def restore(self) -> None:
        """Put back what there was, whatever the storm came to."""
        there = {node["metadata"]["name"]: node for node in self._kube.list("v1", "Node")[0]}
        self._due.clear()
        for name in self._before:
            if name not in there:
                self._come_back(name)
            elif NOTICES_ANNOTATION in there[name]["metadata"].get("annotations", {}):
                self.cancel(name)

    def _lose(self, node: str) -> None:
        """A machine is gone with all that runs there: nothing is told anybody, and no pod has any grace."""
        self.losses += 1
        self._due = [one for one in self._due if one[2] != node]  # a second notice is for the same machine
        heapq.heapify(self._due)
        running = pods_of_node(self._kube, node)
        self._kube.delete("v1", "Node", node)
        for pod in running:
            path = self._kube.path("v1", "Pod", pod["metadata"]["name"], pod["metadata"]["namespace"])
            try:
                self._kube.request("DELETE", path, {"gracePeriodSeconds": 0})
            except KubeError as error:
                if error.status != 404:
                    raise
        heapq.heappush(self._due, (time.time() + AWAY_SECONDS, "back", node))

    def _come_back(self, node: str) -> None:
        try:
            self._kube.create(self._before[node])
        except KubeError as error:
            if error.status != 409:
                raise

    def _patch(self, node: str, body: dict[str, Any]) -> None:
        self._kube.request("PATCH", self._kube.path("v1", "Node", node), body, content_type=MERGE)


@dataclass
class Trainers:
    """The code in the pods of the jobs that honour the contract: it saves now and then, and when it is asked.

    `saves` are the moments of each job's complete checkpoints, told or not: they outlive its pods.
    """

    kube: KubeClient
    honest: Collection[tuple[str, str]]
    seed: int
    saves: defaultdict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    answers: int = 0
    _due: dict[tuple[str, str, str], float] = field(default_factory=dict)
    _done: dict[tuple[str, str, str], Answer] = field(default_factory=dict)

    def turn(self) -> None:
        """Look at every pod once."""
        jobs: defaultdict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
        for team in {team for team, _ in self.honest}:
            for pod in self.kube.list("v1", "Pod", team)[0]:
                key = (team, pod["metadata"]["ownerReferences"][0]["name"])
                runs = pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
                if key in self.honest and runs:
                    jobs[key].append(pod)
        for key, pods in jobs.items():
            self._train(key, pods)

    def _train(self, key: tuple[str, str], pods: list[dict[str, Any]]) -> None:
        now = time.time()
        asked = {pod["metadata"]["name"]: _asked(pod) for pod in pods}
        newest = max(asked.values(), key=lambda request: request.rpartition("-")[2])
        for pod in pods:
            request = asked[pod["metadata"]["name"]]
            if not request or _answered(pod) == request:
                continue
            if (answer := self._done.get((*key, request))) is None:
                random_of_job = random.Random(f"{self.seed} {key} {request}")
                due = self._due.setdefault((*key, request), now + random_of_job.uniform(0.2, 3.0))
                if now < due:
                    continue
                answer = self._done[*key, request] = self._save(key, request)
            self._tell(key, pod, answer)
        idle = not newest or (*key, newest) in self._done
        if idle and now - max(self.saves[key], default=0.0) >= PERIOD_SECONDS:
            self._tell(key, pods[0], self._save(key, newest))

    def _save(self, key: tuple[str, str], request: str) -> Answer:
        at = time.time()
        self.saves[key].append(at)
        step = len(self.saves[key])
        return Answer(request, step, f"s3://checkpoints/{key[1]}/{step}", at)

    def _tell(self, key: tuple[str, str], pod: dict[str, Any], answer: Answer) -> None:
        body = {"metadata": {"annotations": {CHECKPOINT_ANSWER_ANNOTATION: answer_to_json(answer)}}}
        path = self.kube.path("v1", "Pod", pod["metadata"]["name"], key[0])
        try:
            self.kube.request("PATCH", path, body, content_type=MERGE)
            self.answers += 1
        except KubeError as error:
            if error.status not in (404, 409):
                raise


@contextmanager
def training(trainers: Trainers) -> Iterator[None]:
    """The jobs train while the block runs."""
    done, failed = threading.Event(), list[BaseException]()

    def train() -> None:
        while not done.wait(TURN_SECONDS):
            try:
                trainers.turn()
            except KubeError as error:
                failed.append(error)
                return

    thread = threading.Thread(target=train, name="training")
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    if failed:
        raise failed[0]


def _asked(pod: dict[str, Any]) -> str:
    text = pod["metadata"].get("annotations", {}).get(CHECKPOINT_REQUEST_ANNOTATION)
    return asked_in(text) if text else ""


def _answered(pod: dict[str, Any]) -> str:
    text = pod["metadata"].get("annotations", {}).get(CHECKPOINT_ANSWER_ANNOTATION)
    return answer_from_json(text).request if text else ""
