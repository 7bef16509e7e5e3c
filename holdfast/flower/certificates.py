"""Certificates and keys for a federation: its own certificate authority, and a key per node."""

from __future__ import annotations

import datetime
import ipaddress
import os
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID

VALID_DAYS = 365


def make_certificates(folder: Path, hosts: list[str]) -> None:
    """Write ``ca.crt``, ``server.crt`` and ``server.key`` for a SuperLink with these names or addresses.

    ``localhost`` is added: the process that runs the server's half connects from the same machine.
    """
    hosts = list(dict.fromkeys([*hosts, "localhost", "127.0.0.1"]))
    folder.mkdir(parents=True, exist_ok=True)
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = _name("holdfast federation")
    constraints = x509.BasicConstraints(ca=True, path_length=0)
    ca = _builder(authority, authority, ca_key.public_key()).add_extension(constraints, critical=True)
    key_usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    ca_certificate = ca.add_extension(key_usage, critical=True).sign(ca_key, hashes.SHA256())
    names = x509.SubjectAlternativeName([_host(h) for h in hosts])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    server = _builder(_name(hosts[0]), authority, key.public_key()).add_extension(names, critical=False)
    certificate = server.add_extension(issuer, critical=False).sign(ca_key, hashes.SHA256())
    (folder / "ca.crt").write_bytes(ca_certificate.public_bytes(Encoding.PEM))
    (folder / "server.crt").write_bytes(certificate.public_bytes(Encoding.PEM))
    _write_private(folder / "server.key", key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def make_node_key(path: Path) -> None:
    """Write a node's private key at ``path`` and its public key beside it, in ``.pub``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP384R1())
    _write_private(path, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    path.with_suffix(".pub").write_bytes(key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(hours=1))
    builder = builder.not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
