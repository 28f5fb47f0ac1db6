"""A small API server in memory, behind httpx2's transport seam: enough of Kubernetes to lie to the agent truthfully.

It keeps objects, resource versions and watches; it pages lists, selects by labels and fields, forgets old versions
(410), refuses stale writes (409), and merges, applies and denies as told. Server-side apply knows who applied which
entry of a list, and takes away what its manager leaves out. It knows no schema, no defaulting, no controllers: tests
play those.
"""

from __future__ import annotations

import asyncio
import copy
import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2

from runtime.kube import Kube, Resource

Raw = dict[str, Any]
Key = tuple[str, str, str]
"""(collection path, namespace or empty, name)"""


class Denied(Exception):
    """Raised by a test's rule: answer with this status instead."""

    def __init__(self, code: int, message: str = "denied by the test") -> None:
        super().__init__(message)
        self.code = code


@dataclass
class FakeCluster:
    """Use `kube()` for a client, `put`/`change`/`remove` to play controllers.

    `rule` sees every request and may raise Denied, `webhook` every write of an object with what was and what would be.
    What `loses` says yes to is carried out, and its answer never arrives.
    """

    objects: dict[Key, Raw] = field(default_factory=dict)
    version: int = 100
    oldest_version: int = 0
    requests: list[tuple[str, str, Any]] = field(default_factory=list)
    rule: Callable[[str, str, Any], None] = lambda method, path, body: None
    webhook: Callable[[Key, Raw, Raw], None] = lambda key, before, after: None
    loses: Callable[[str, str], bool] = lambda method, path: False
    _owned: dict[Key, dict[str, set[tuple[str, str]]]] = field(default_factory=dict)
    _watches: list[_Watch] = field(default_factory=list)

    def kube(self) -> Kube:
        client = httpx2.AsyncClient(transport=httpx2.MockTransport(self._answer), base_url="https://cluster")
        return Kube(client)

    # What tests do to the cluster.

    def put(self, resource: Resource, raw: Raw) -> Raw:
        """Create or replace an object, as a controller would."""
        metadata = raw["metadata"]
        key = (resource.version + "/" + resource.plural, metadata.get("namespace", ""), metadata["name"])
        metadata.setdefault("uid", str(uuid.uuid4()))
        return self._store(key, raw, "MODIFIED" if key in self.objects else "ADDED")

    def get(self, resource: Resource, name: str, namespace: str = "") -> Raw:
        return copy.deepcopy(self.objects[resource.version + "/" + resource.plural, namespace, name])

    def change(self, resource: Resource, name: str, namespace: str, edit: Callable[[Raw], object]) -> None:
        """Edit an object, as a controller would."""
        raw = self.get(resource, name, namespace)
        edit(raw)
        self.put(resource, raw)

    def remove(self, resource: Resource, name: str, namespace: str = "") -> None:
        key = (resource.version + "/" + resource.plural, namespace, name)
        raw = self.objects.pop(key)
        self.version += 1
        self._publish(key[0], "DELETED", raw | {"metadata": raw["metadata"] | {"resourceVersion": str(self.version)}})

    def end_watches(self, error: Exception | None = None) -> None:
        """Close every watch, or break it with an error."""
        for watch in self._watches:
            watch.lines.put_nowait(error)
        self._watches.clear()

    def send_on_watches(self, line: bytes) -> None:
        """Send this, whatever it is."""
        for watch in self._watches:
            watch.lines.put_nowait(line)

    def forget_history(self) -> None:
        """From now on, older versions are gone."""
        self.oldest_version = self.version

    @property
    def watching(self) -> int:
        return len(self._watches)

    def writes(self) -> list[str]:
        """`PATCH /apis/…` of every write so far, events and leases left out."""
        return [
            f"{method} {path}"
            for method, path, _ in self.requests
            if method != "GET" and not path.endswith("/events") and "/leases" not in path
        ]

    @contextmanager
    def refusing(self, error: Exception | None = None) -> Iterator[None]:
        """The server is gone: every request inside fails."""
        former = self.rule

        def refuse(method: str, path: str, body: Any) -> None:
            raise error or httpx2.ConnectError("connection refused")

        self.rule = refuse
        try:
            yield
        finally:
            self.rule = former

    # What the server does.

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content) if request.content else None
        path = request.url.path
        self.requests.append((request.method, path, body))
        try:
            self.rule(request.method, path, body)
            answer = self._route(request, body)
            if self.loses(request.method, path):
                raise httpx2.ReadTimeout("no answer")
            return answer
        except Denied as denied:
            return httpx2.Response(denied.code, json={"kind": "Status", "code": denied.code, "message": str(denied)})

    def _route(self, request: httpx2.Request, body: Any) -> httpx2.Response:
        parts = request.url.path.strip("/").split("/")
        version, parts = ("/".join(parts[1:3]), parts[3:]) if parts[0] == "apis" else (parts[1], parts[2:])
        namespace = ""
        if parts[0] == "namespaces" and len(parts) > 2:
            namespace, parts = parts[1], parts[2:]
        collection, rest = f"{version}/{parts[0]}", parts[1:]
        params = request.url.params
        if not rest and request.method == "POST":
            return self._create(collection, namespace, body)
        if not rest:
            answer = self._watch if params.get("watch") else self._list
            return answer(collection, namespace, params)
        key = (collection, namespace, rest[0])
        if key not in self.objects:
            raise Denied(404, f"{rest[0]} not found")
        if request.method == "GET":
            return httpx2.Response(200, json=self.objects[key])
        if rest[1:] == ["eviction"]:
            return self._evict(key, body)
        return self._write(key, body, request.headers["content-type"], params.get("fieldManager", ""))

    def _create(self, collection: str, namespace: str, body: Raw) -> httpx2.Response:
        metadata = body["metadata"]
        name = metadata.get("name") or metadata["generateName"] + uuid.uuid4().hex[:5]
        key = (collection, namespace, name)
        if key in self.objects:
            raise Denied(409, f"{name} already exists")
        body["metadata"] |= {"name": name, "uid": str(uuid.uuid4())}
        return httpx2.Response(201, json=self._store(key, body, "ADDED"))

    def _write(self, key: Key, body: Raw, content_type: str, manager: str) -> httpx2.Response:
        before = self.objects[key]
        for name in ("resourceVersion", "uid"):
            asked = (body.get("metadata") or {}).get(name)
            if asked is not None and asked != before["metadata"][name]:
                raise Denied(409, f"the object has been modified: another {name}")
        after = copy.deepcopy(before)
        if content_type == "application/apply-patch+yaml":
            applied = _apply_status(after, body["status"], self._owned.get(key, {}), manager)
        elif content_type == "application/merge-patch+json":
            _merge(after, body)
        else:
            after = body | {"metadata": before["metadata"] | body["metadata"]}
        self.webhook(key, before, after)
        if content_type == "application/apply-patch+yaml":
            self._owned.setdefault(key, {})[manager] = applied
        if after == before:
            return httpx2.Response(200, json=before)
        return httpx2.Response(200, json=self._store(key, after, "MODIFIED"))

    def _evict(self, key: Key, body: Raw) -> httpx2.Response:
        """Mark a pod as leaving; the kubelet would remove it."""
        pod = copy.deepcopy(self.objects[key])
        if body["deleteOptions"]["preconditions"]["uid"] != pod["metadata"]["uid"]:
            raise Denied(409, "the UID in the precondition does not match")
        pod["metadata"].setdefault("deletionTimestamp", "2026-11-21T12:00:00Z")
        self._store(key, pod, "MODIFIED")
        return httpx2.Response(201, json={"kind": "Status", "status": "Success"})

    def _store(self, key: Key, raw: Raw, kind: str) -> Raw:
        self.version += 1
        raw["metadata"]["resourceVersion"] = str(self.version)
        self.objects[key] = copy.deepcopy(raw)
        self._publish(key[0], kind, raw)
        return raw

    def _publish(self, collection: str, kind: str, raw: Raw) -> None:
        for watch in self._watches:
            if watch.collection == collection:
                watch.tell(kind, raw)

    def _list(self, collection: str, namespace: str, params: httpx2.QueryParams) -> httpx2.Response:
        items = [
            raw
            for key, raw in self.objects.items()
            if key[0] == collection and namespace in ("", key[1]) and _selected(raw, params)
        ]
        start, _, token_version = params.get("continue", f"0:{self.version}").partition(":")
        if int(token_version) < self.oldest_version:
            raise Denied(410, "the provided continue parameter is too old")
        end = int(start) + int(params["limit"])
        metadata = {"resourceVersion": token_version} | (
            {"continue": f"{end}:{token_version}"} if end < len(items) else {}
        )
        return httpx2.Response(200, json={"metadata": metadata, "items": items[int(start) : end]})

    def _watch(self, collection: str, namespace: str, params: httpx2.QueryParams) -> httpx2.Response:
        since = int(params["resourceVersion"])
        watch = _Watch(collection, namespace, params, asyncio.Queue())
        if since < self.oldest_version:
            watch.lines.put_nowait(_line("ERROR", {"code": 410, "message": "too old resource version"}))
            watch.lines.put_nowait(None)
        else:
            for key, raw in self.objects.items():
                if key[0] == collection:
                    watch.tell("MODIFIED", raw, silently=int(raw["metadata"]["resourceVersion"]) <= since)
            self._watches.append(watch)
            asyncio.get_running_loop().call_later(float(params["timeoutSeconds"]), watch.lines.put_nowait, None)
        return httpx2.Response(200, stream=watch)


@dataclass
class _Watch(httpx2.AsyncByteStream):
    collection: str
    namespace: str
    params: httpx2.QueryParams
    lines: asyncio.Queue[bytes | Exception | None]
    _known: set[str] = field(default_factory=set)

    def tell(self, kind: str, raw: Raw, *, silently: bool = False) -> None:
        """Send an event; an object that stops being selected is deleted as far as this watch goes."""
        metadata = raw["metadata"]
        if self.namespace not in ("", metadata.get("namespace", "")):
            return
        selected = _selected(raw, self.params)
        known = metadata["uid"] in self._known
        if selected and kind != "DELETED":
            self._known.add(metadata["uid"])
        elif known or selected:
            self._known.discard(metadata["uid"])
            kind = "DELETED"
        else:
            return
        if not silently:
            self.lines.put_nowait(_line(kind, raw))

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (line := await self.lines.get()) is not None:
            if isinstance(line, Exception):
                raise line
            half = len(line) // 2
            yield line[:half]
            yield line[half:]


def _line(kind: str, raw: Raw) -> bytes:
    return json.dumps({"type": kind, "object": raw}, ensure_ascii=False).encode() + b"\n"


def _merge(into: Raw, patch: Raw) -> None:
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict):
            if not isinstance(into.get(key), dict):
                into[key] = {}
            _merge(into[key], value)
        else:
            into[key] = value


def _apply_status(into: Raw, status: Raw, owned: dict[str, set[tuple[str, str]]], manager: str) -> set[tuple[str, str]]:
    """Apply entries of lists; returns those that the manager owns from now on."""
    applied = set()
    for field_name, entries in status.items():
        merge_key = "type" if field_name == "conditions" else "name"
        present = into.setdefault("status", {}).setdefault(field_name, [])
        for entry in entries:
            present[:] = [other for other in present if other[merge_key] != entry[merge_key]] + [entry]
            applied.add((field_name, entry[merge_key]))
    others = set().union(*(entries for other, entries in owned.items() if other != manager))
    for field_name, name in owned.get(manager, set()) - applied - others:
        merge_key = "type" if field_name == "conditions" else "name"
        present = into["status"].get(field_name) or []
        present[:] = [other for other in present if other[merge_key] != name]
    return applied


def _selected(raw: Raw, params: httpx2.QueryParams) -> bool:
    """Whether an object is meant: `a=b`, `a!=b`, `a`, `!a`, joined by commas, over labels; `a.b=c` over fields."""
    labels = raw["metadata"].get("labels") or {}
    for term in filter(None, params.get("labelSelector", "").split(",")):
        name, sign, value = _term(term)
        holds = (name.lstrip("!") in labels) != name.startswith("!") if sign == "" else labels.get(name) == value
        if holds == (sign == "!="):
            return False
    for term in filter(None, params.get("fieldSelector", "").split(",")):
        name, sign, value = _term(term)
        found: Any = raw
        for part in name.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        if (found == value) == (sign == "!="):
            return False
    return True


def _term(term: str) -> tuple[str, str, str]:
    name, sign, value = term.partition("!=")
    if not sign:
        name, sign, value = term.replace("==", "=").partition("=")
    return name, sign, value
