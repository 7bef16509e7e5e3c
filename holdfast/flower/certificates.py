"""Certificates and keys for a federation: a certificate authority of its own, and a key per node."""

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

DAYS = 365


def certificates(folder: Path, hosts: list[str]) -> None:
    """``ca.crt``, ``server.crt`` and ``server.key`` for a SuperLink that is reached under these names or addresses.

    It is also reached from its own machine, by the process that runs the server's half.
    """
    hosts = list(dict.fromkeys([*hosts, "localhost", "127.0.0.1"]))
    folder.mkdir(parents=True, exist_ok=True)
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = _name("holdfast federation")
    usage = x509.BasicConstraints(ca=True, path_length=0)
    ca = _builder(authority, authority, ca_key.public_key()).add_extension(usage, critical=True)
    signs = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    ca_made = ca.add_extension(signs, critical=True).sign(ca_key, hashes.SHA256())
    names = x509.SubjectAlternativeName([_host(h) for h in hosts])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    server = _builder(_name(hosts[0]), authority, key.public_key()).add_extension(names, critical=False)
    made = server.add_extension(issuer, critical=False).sign(ca_key, hashes.SHA256())
    (folder / "ca.crt").write_bytes(ca_made.public_bytes(Encoding.PEM))
    (folder / "server.crt").write_bytes(made.public_bytes(Encoding.PEM))
    _secret(folder / "server.key", key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def node_key(path: Path) -> None:
    """A node's private key at ``path`` and its public key beside it, in ``.pub``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP384R1())
    _secret(path, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    path.with_suffix(".pub").write_bytes(key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(hours=1))
    builder = builder.not_valid_after(now + datetime.timedelta(days=DAYS))
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _secret(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
