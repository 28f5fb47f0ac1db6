"""A small synchronous Kubernetes client for what the embedded control plane itself has to set up and watch.

It is not the agent's client (`runtime/kube.py` is) and knows no types: objects are plain manifests. It resolves kinds
by the server's own discovery, ignores proxy settings, and never retries a write by itself.
"""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx2
import yaml

from infra.local.errors import KubeError

Manifest = dict[str, Any]

FIELD_MANAGER = "gpufleet-local"
DIGEST_ANNOTATION = "gpufleet.dev/manifest-digest"
_TIMEOUT = httpx2.Timeout(30.0, connect=5.0)
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"


class KubeClient:
    """Requests to one API server as the user of a kubeconfig; close it, or use it in a `with` block."""

    def __init__(self, kubeconfig: Path) -> None:
        self.server, context = _connection(kubeconfig)
        self._http = httpx2.Client(base_url=self.server, verify=context, timeout=_TIMEOUT, trust_env=False)
        self._resources: dict[tuple[str, str], tuple[str, bool]] = {}

    def __enter__(self) -> KubeClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; a running `watch` in another thread ends with a KubeError."""
        self._http.close()

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        content_type: str = "application/json",
        parameters: Mapping[str, str] | None = None,
    ) -> Any:
        """Send one request and return the decoded answer (text where it is no JSON).

        Raises:
            KubeError: the server refused (with its status and reason) or did not answer (status 0).
        """
        content = None if body is None else json.dumps(body).encode()
        try:
            response = self._http.request(
                method, path, content=content, params=parameters, headers={"Content-Type": content_type}
            )
        except httpx2.HTTPError as error:
            raise KubeError(f"{method} {path}: no answer from {self._http.base_url} ({error})", 0) from error
        if response.status_code >= 400:
            raise _refusal(method, path, response.status_code, response.text)
        if response.headers.get("content-type", "").startswith("application/json"):
            return response.json()
        return response.text

    def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Manifest:
        """Return one object."""
        return dict(self.request("GET", self.path(api_version, kind, name, namespace)))

    def find(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Manifest | None:
        """Return one object, None where it does not exist."""
        try:
            return self.get(api_version, kind, name, namespace)
        except KubeError as error:
            if error.status == 404:
                return None
            raise

    def list(
        self, api_version: str, kind: str, namespace: str | None = None, *, label_selector: str = ""
    ) -> tuple[list[Manifest], str]:
        """Return all objects and the resource version to watch from."""
        parameters = {"labelSelector": label_selector} if label_selector else None
        answer = self.request("GET", self.path(api_version, kind, None, namespace), parameters=parameters)
        return answer["items"], answer["metadata"]["resourceVersion"]

    def create(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Create an object."""
        path = self.path_of(manifest, with_name=False)
        return dict(
            self.request(
                "POST",
                path,
                manifest,
                parameters={"fieldManager": FIELD_MANAGER, **({"dryRun": "All"} if dry_run else {})},
            )
        )

    def apply(self, manifest: Manifest, *, subresource: str = "", manager: str = FIELD_MANAGER) -> Manifest:
        """Create or change an object by server-side apply, taking over contested fields."""
        path = self.path_of(manifest) + (f"/{subresource}" if subresource else "")
        parameters = {"fieldManager": manager, "force": "true"}
        return dict(self.request("PATCH", path, manifest, content_type=_APPLY, parameters=parameters))

    def ensure(self, manifest: Manifest) -> None:
        """Bring an object to `manifest` at the least cost: unchanged ones are only read, new ones plainly created.

        Server-side apply of a large CRD costs the server a tenth of a second; a digest in an annotation saves it.
        """
        digest = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()[:16]
        metadata = manifest["metadata"]
        annotations = {**metadata.get("annotations", {}), DIGEST_ANNOTATION: digest}
        marked = {**manifest, "metadata": {**metadata, "annotations": annotations}}
        live = self.find(manifest["apiVersion"], manifest["kind"], metadata["name"], metadata.get("namespace"))
        if live is None:
            self.create(marked)
        elif live["metadata"].get("annotations", {}).get(DIGEST_ANNOTATION) != digest:
            self.apply(marked)

    def patch_status(self, manifest: Manifest, status: Mapping[str, Any]) -> Manifest:
        """Merge into the status of the object that `manifest` names."""
        path = self.path_of(manifest) + "/status"
        return dict(self.request("PATCH", path, {"status": status}, content_type=_MERGE))

    def delete(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> None:
        """Delete an object; nothing happens where it does not exist."""
        try:
            self.request("DELETE", self.path(api_version, kind, name, namespace))
        except KubeError as error:
            if error.status != 404:
                raise

    def watch(
        self,
        api_version: str,
        kind: str,
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str = "",
        seconds: int = 300,
    ) -> Iterator[tuple[str, Manifest]]:
        """Yield (event type, object) until the server ends the watch after `seconds`.

        Raises:
            KubeError: the version is too old (status 410: list again), or the connection broke (status 0).
        """
        path = self.path(api_version, kind, None, namespace)
        parameters = {"watch": "true", "resourceVersion": resource_version, "timeoutSeconds": str(seconds)}
        if label_selector:
            parameters["labelSelector"] = label_selector
        timeout = httpx2.Timeout(seconds + 10.0, connect=5.0)
        try:
            with self._http.stream("GET", path, params=parameters, timeout=timeout) as response:
                if response.status_code >= 400:
                    raise _refusal("WATCH", path, response.status_code, response.read().decode(errors="replace"))
                for line in response.iter_lines():
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        status = event["object"]
                        raise KubeError(f"WATCH {path}: {status.get('message')}", int(status.get("code", 0)))
                    yield event["type"], event["object"]
        except (httpx2.HTTPError, httpx2.StreamError, RuntimeError, ValueError) as error:
            raise KubeError(f"WATCH {path}: {error}", 0) from error

    def path_of(self, manifest: Manifest, *, with_name: bool = True) -> str:
        """Return the API path of the object a manifest describes."""
        metadata = manifest["metadata"]
        name = metadata["name"] if with_name else None
        return self.path(manifest["apiVersion"], manifest["kind"], name, metadata.get("namespace"))

    def path(self, api_version: str, kind: str, name: str | None = None, namespace: str | None = None) -> str:
        """Return the API path of an object, or of the collection where no name is given."""
        root = f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}"
        if (api_version, kind) not in self._resources:
            self._discover(root, api_version)
        if (api_version, kind) not in self._resources:
            raise KubeError(f"the API server knows no kind {kind} in {api_version}; is its CRD applied?", 404)
        plural, namespaced = self._resources[api_version, kind]
        scope = f"/namespaces/{namespace}" if namespaced and namespace else ""
        return f"{root}{scope}/{plural}" + (f"/{name}" if name else "")

    def _discover(self, root: str, api_version: str) -> None:
        for resource in self.request("GET", root).get("resources", []):
            if "/" not in resource["name"]:
                self._resources[api_version, resource["kind"]] = (resource["name"], bool(resource["namespaced"]))


def _refusal(method: str, path: str, status_code: int, body: str) -> KubeError:
    try:
        status = json.loads(body)
        message, reason = str(status.get("message", body)), str(status.get("reason", ""))
    except (ValueError, AttributeError):
        message, reason = body[:500], ""
    return KubeError(f"{method} {path}: {status_code} {message}", status_code, reason)


def _connection(kubeconfig: Path) -> tuple[str, ssl.SSLContext]:
    try:
        content = yaml.safe_load(kubeconfig.read_text())
        cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
        context = ssl.create_default_context(cadata=_decoded(cluster["certificate-authority-data"]).decode())
        with tempfile.TemporaryDirectory(prefix="gpufleet-") as directory:  # the ssl module reads keys from files only
            certificate, key = Path(directory, "crt"), Path(directory, "key")
            certificate.write_bytes(_decoded(user["client-certificate-data"]))
            key.touch(mode=0o600)
            key.write_bytes(_decoded(user["client-key-data"]))
            context.load_cert_chain(certificate, key)
        return str(cluster["server"]), context
    except (OSError, KeyError, IndexError, TypeError, ValueError, yaml.YAMLError) as error:
        raise KubeError(
            f"{kubeconfig}: not a kubeconfig of the embedded control plane ({error}); start the control plane again", 0
        ) from error


def _decoded(value: str) -> bytes:
    return base64.b64decode(value)
