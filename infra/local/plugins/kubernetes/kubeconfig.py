"""Where the cluster is and how to prove who we are, from a kubeconfig.

It reads certificates, keys and tokens. It does not run credential helpers (`exec`, `auth-provider`): those belong
to clouds, for which the official provider is there. Invariant: what was read never appears in an error message.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from infra.local.plugins.kubernetes.errors import KubeconfigError

DEFAULT_PATH = Path("~/.kube/config")


@dataclass(frozen=True)
class Cluster:
    """One reachable API server.

    `token` is a function because a token file may be rotated while we run.
    """

    server: str
    namespace: str
    tls: ssl.SSLContext | None
    token: Callable[[], str | None]


def load(text_or_path: str | None, context: str | None, namespace: str | None) -> Cluster:
    """The cluster of one context.

    Args:
        text_or_path: a kubeconfig's content or its path; none means $KUBECONFIG, then ~/.kube/config.
        context: the context's name; none means the current one.
        namespace: the namespace of objects that name none; none means the context's, then `default`.

    Raises:
        KubeconfigError: the file, the context or its credentials cannot be used.
    """
    config, folder = _read(text_or_path)
    context_name = context or str(config.get("current-context") or "")
    chosen = _named(config, "contexts", "context", context_name)
    cluster = _named(config, "clusters", "cluster", str(chosen.get("cluster") or ""))
    users = config.get("users") or chosen.get("user")
    user = _named(config, "users", "user", str(chosen.get("user") or "")) if users else {}
    for helper in ("exec", "auth-provider"):
        if helper in user:
            raise KubeconfigError(
                f"kubeconfig user {chosen.get('user')!r} gets its credentials from {helper!r}, which the embedded "
                "provider does not run; use a certificate or token, or install Pulumi's own kubernetes provider"
            )
    server = str(cluster.get("server") or "")
    if urlsplit(server).scheme not in {"http", "https"} or not urlsplit(server).hostname:
        raise KubeconfigError(f"kubeconfig cluster {chosen.get('cluster')!r}: server is {server!r}, expected a URL")
    return Cluster(
        server=server.rstrip("/"),
        namespace=namespace or str(chosen.get("namespace") or "default"),
        tls=_tls(cluster, user, folder) if server.startswith("https") else None,
        token=_token(user, folder),
    )


def _read(text_or_path: str | None) -> tuple[Mapping[str, Any], Path]:
    """The parsed kubeconfig and the folder that its relative paths start from."""
    if text_or_path and ("\n" in text_or_path or text_or_path.lstrip().startswith("{")):
        return _parse(text_or_path, "the provider's kubeconfig argument"), Path.cwd()
    if text_or_path:
        paths = [Path(text_or_path)]
    else:
        paths = [Path(entry) for entry in os.environ.get("KUBECONFIG", "").split(os.pathsep) if entry]
    paths = [path.expanduser() for path in paths or [DEFAULT_PATH]]
    present = [path for path in paths if path.is_file()]
    if not present:
        raise KubeconfigError(
            f"no kubeconfig at {', '.join(str(path) for path in paths)}; set KUBECONFIG or the provider's kubeconfig"
        )
    if len(present) > 1:
        raise KubeconfigError(
            f"KUBECONFIG names {len(present)} files; the embedded provider reads one "
            "(merge them: kubectl config view --flatten)"
        )
    return _parse(present[0].read_text(encoding="utf-8"), str(present[0])), present[0].parent


def _parse(text: str, origin: str) -> Mapping[str, Any]:
    import yaml  # here, because most processes of this provider get by with what they have imported already

    try:
        config = yaml.safe_load(text)
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f" at line {where.line + 1}" if where else ""
        raise KubeconfigError(f"{origin} is not YAML{line}") from None
    if not isinstance(config, Mapping):
        raise KubeconfigError(f"{origin} is not a kubeconfig: expected a mapping, got {type(config).__name__}")
    return config


def _named(config: Mapping[str, Any], collection: str, field: str, name: str) -> Mapping[str, Any]:
    entries = config.get(collection) or []
    for entry in entries:
        if isinstance(entry, Mapping) and entry.get("name") == name:
            return entry.get(field) or {}
    known = ", ".join(sorted(str(entry.get("name")) for entry in entries if isinstance(entry, Mapping))) or "none"
    raise KubeconfigError(f"kubeconfig has no {field} {name!r} (it has: {known})")


def _bytes(source: Mapping[str, Any], name: str, folder: Path) -> bytes | None:
    """A certificate or key, given inline (`NAME-data`, base64) or as a file (`NAME`)."""
    if inline := source.get(f"{name}-data"):
        try:
            return base64.b64decode(str(inline), validate=True)
        except binascii.Error:
            raise KubeconfigError(f"kubeconfig: {name}-data is not base64") from None
    if path := source.get(name):
        try:
            return (folder / Path(str(path)).expanduser()).read_bytes()
        except OSError as error:
            raise KubeconfigError(f"kubeconfig: cannot read {name} {str(path)!r}: {error.strerror}") from None
    return None


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any], folder: Path) -> ssl.SSLContext:
    authority = _bytes(cluster, "certificate-authority", folder)
    certificate, key = _bytes(user, "client-certificate", folder), _bytes(user, "client-key", folder)
    try:
        context = ssl.create_default_context(cadata=authority.decode("ascii") if authority else None)
        if cluster.get("insecure-skip-tls-verify"):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if certificate and key:
            _load_pair(context, certificate, key)
    except (ssl.SSLError, UnicodeDecodeError) as error:
        raise KubeconfigError(f"kubeconfig: a certificate or key cannot be used ({type(error).__name__})") from None
    return context


def _load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Hand a certificate and its key to OpenSSL, which reads files only."""
    with tempfile.TemporaryDirectory(prefix="gpufleet-tls-") as folder:
        path = Path(folder, "pair.pem")
        path.touch(mode=0o600)
        path.write_bytes(certificate.rstrip() + b"\n" + key)
        context.load_cert_chain(path)


def _token(user: Mapping[str, Any], folder: Path) -> Callable[[], str | None]:
    if path := user.get("tokenFile"):
        file = folder / Path(str(path)).expanduser()
        return lambda: file.read_text(encoding="utf-8").strip()
    token = user.get("token")
    return lambda: str(token) if token else None
