"""Certificates and keys of one embedded control plane.

It renews nothing: certificates last ten years, a state directory does not. It protects against other users of the
machine, not against the one who runs it.

Invariants: the set appears on disk as a whole or not at all. The authority is RSA and names `kueue-ca`, and the server
certificate is valid for the webhook service's name, because Kueue's certificate rotator replaces any other.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from infra.files import write_atomically

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey

_LIFETIME = datetime.timedelta(days=3650)
_CLOCK_SKEW = datetime.timedelta(hours=1)
_AUTHORITY_NAMES = ("kueue-ca",)
_SERVER_NAMES = ("127.0.0.1", "localhost", "kubernetes.default.svc", "kueue-webhook-service.kueue-system.svc")

# Client certificates: file name → (user, group). The controllers act through system:masters because the controller
# manager's own role cannot create pods without one role per controller.
_CLIENTS = {
    "admin": ("gpufleet-admin", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", "system:masters"),
    "scheduler": ("system:kube-scheduler", None),
    "kwok": ("kwok", "system:masters"),
    "kueue": ("kueue", "system:masters"),
    "etcd-client": ("kube-apiserver-etcd-client", None),
}
_COMPLETE = "complete"


@dataclass(frozen=True)
class Pki:
    """The files of a complete set; `make` is the only way to get one."""

    root: Path

    @property
    def authority(self) -> Path:
        """The certificate that signs all others."""
        return self.root / "ca.crt"

    @property
    def webhook_directory(self) -> Path:
        """What Kueue's `webhook.certDir` must point to: tls.crt and tls.key."""
        return self.root / "webhook"

    def certificate(self, name: str) -> Path:
        """Return the path of a certificate by file name."""
        return self.root / f"{name}.crt"

    def key(self, name: str) -> Path:
        """Return the path of a private key by file name."""
        return self.root / f"{name}.key"


def make(root: Path) -> Pki:
    """Return the set under `root`, made anew where none is complete (an interrupted attempt is thrown away)."""
    if not (root / _COMPLETE).exists():
        building = root.with_name(f"{root.name}.building")
        shutil.rmtree(building, ignore_errors=True)
        _write_all(building)
        shutil.rmtree(root, ignore_errors=True)
        os.replace(building, root)  # noqa: PTH105
    return Pki(root)


def _write_all(root: Path) -> None:
    root.mkdir(parents=True, mode=0o700)
    authority_key: PrivateKey = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    authority = _certificate("gpufleet-local-ca", authority_key, names=_AUTHORITY_NAMES)
    _write_pair(root, "ca", authority, authority_key)

    server_key: PrivateKey = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    server = _certificate("gpufleet-local", server_key, names=_SERVER_NAMES, issuer=(authority, authority_key))
    _write_pair(root, "server", server, server_key)
    write_atomically(root / "webhook" / "tls.crt", _pem(server))
    write_atomically(root / "webhook" / "tls.key", _pem_key(server_key))

    for name, (user, group) in _CLIENTS.items():
        key = ec.generate_private_key(ec.SECP256R1())
        _write_pair(root, name, _certificate(user, key, group=group, issuer=(authority, authority_key)), key)

    signing_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    write_atomically(root / "service-account.key", _pem_key(signing_key))
    write_atomically(
        root / "service-account.pub",
        signing_key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        ),
    )
    write_atomically(root / _COMPLETE, "")


def _certificate(
    common_name: str,
    key: PrivateKey,
    *,
    names: Sequence[str] = (),
    group: str | None = None,
    issuer: tuple[x509.Certificate, PrivateKey] | None = None,
) -> x509.Certificate:
    """Sign a certificate by `issuer`, or by itself as an authority where there is none."""
    is_authority = issuer is None
    subject = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if group:
        subject.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(subject))
        .issuer_name(issuer[0].subject if issuer else x509.Name(subject))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(_key_usage(is_authority), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if issuer:
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False).add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer[1].public_key()), critical=False
        )
    if names:
        alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
        builder = builder.add_extension(alternatives, critical=False)
    return builder.sign(issuer[1] if issuer else key, hashes.SHA256())


def _key_usage(is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=True,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _pem_key(key: PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _write_pair(root: Path, name: str, certificate: x509.Certificate, key: PrivateKey) -> None:
    write_atomically(root / f"{name}.crt", _pem(certificate))
    write_atomically(root / f"{name}.key", _pem_key(key))
