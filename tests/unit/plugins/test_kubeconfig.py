from __future__ import annotations

import base64
import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from infra.local.plugins.kubernetes import kubeconfig
from infra.local.plugins.kubernetes.errors import KubeconfigError

SECRET = "do-not-print-me"


def config(user: Any = None, **cluster: Any) -> dict[str, Any]:
    return {
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443", **cluster}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [
            {"name": "here", "context": {"cluster": "c", "user": "u"}},
            {"name": "there", "context": {"cluster": "c", "user": "u", "namespace": "team"}},
        ],
    }


def load(content: Any, context: str | None = None, namespace: str | None = None) -> kubeconfig.Cluster:
    return kubeconfig.load(yaml.safe_dump(content), context, namespace)


@pytest.fixture
def pair() -> tuple[bytes, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "admin")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now).not_valid_after(now + datetime.timedelta(hours=1))
    certificate = builder.sign(key, hashes.SHA256())
    return certificate.public_bytes(serialization.Encoding.PEM), key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def test_the_context_and_the_namespace_are_chosen_by_argument_then_by_file() -> None:
    assert load(config()).namespace == "default"
    assert load(config(), "there").namespace == "team"
    assert load(config(), "there", "mine").namespace == "mine"


def test_a_client_certificate_is_read_from_data_and_from_relative_files(
    pair: tuple[bytes, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = pair
    encoded = [base64.b64encode(part).decode() for part in pair]
    user: dict[str, Any] = {"client-certificate-data": encoded[0], "client-key-data": encoded[1]}
    authority: dict[str, Any] = {"certificate-authority-data": encoded[0]}
    assert load(config(user, **authority)).tls is not None
    (tmp_path / "client.crt").write_bytes(certificate)
    (tmp_path / "client.key").write_bytes(key)
    files = {"client-certificate": "client.crt", "client-key": "client.key"}
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config(files, **authority)))
    assert kubeconfig.load(str(path), None, None).tls is not None
    monkeypatch.setenv("KUBECONFIG", str(path))
    assert kubeconfig.load(None, None, None).server == "https://127.0.0.1:6443"


def test_a_token_file_is_read_anew_for_each_request(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    cluster = load(config({"tokenFile": str(file)}))
    assert cluster.token() == "first"
    file.write_text("second\n")
    assert cluster.token() == "second"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (config({"exec": {"command": "aws"}}), "does not run; use a certificate"),
        (config({"token": SECRET}, server="not a url"), "expected a URL"),
        (config({"client-certificate-data": "!", "client-key-data": SECRET}), "client-certificate-data is not base64"),
        (config({"client-certificate": "/nowhere.crt"}), "cannot read client-certificate '/nowhere.crt'"),
        (config(**{"certificate-authority-data": base64.b64encode(b"junk").decode()}), "cannot be used"),
        ({**config(), "current-context": "gone"}, r"no context 'gone' \(it has: here, there\)"),
        ({**config(), "clusters": []}, r"no cluster 'c' \(it has: none\)"),
        ([], "expected a mapping, got list"),
    ],
)
def test_what_cannot_be_used_is_said_without_its_secrets(content: Any, message: str) -> None:
    with pytest.raises(KubeconfigError, match=message) as caught:
        kubeconfig.load(f"\n{yaml.safe_dump(content)}", None, None)
    assert SECRET not in str(caught.value)


def test_a_missing_file_names_where_it_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    with pytest.raises(KubeconfigError, match=r"no kubeconfig at .*/absent; set KUBECONFIG"):
        kubeconfig.load(None, None, None)
