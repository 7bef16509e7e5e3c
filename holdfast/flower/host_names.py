"""Check the name or address of a server."""

from __future__ import annotations

import ipaddress
import re

from holdfast.core.errors import HoldfastError

NAME = re.compile(
    r"(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.IGNORECASE
)
LONGEST = 253  # characters of a name in DNS


def check_host(host: str) -> None:
    """Raise an error unless this is an address or a name in DNS, in ASCII."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        if len(host) > LONGEST or not NAME.fullmatch(host):
            raise HoldfastError(f"--host {shown(host)} is no host name or address: {remedy(host)}") from None


def shown(host: str) -> str:
    """Return a name for an error message."""
    return repr(host) if len(host) <= 60 else f"{host[:60]!r}..."


def remedy(host: str) -> str:
    """Say what to give instead; names in other alphabets have a form in ASCII."""
    try:
        translated = host.encode("idna").decode("ascii")
    except UnicodeError:
        translated = host
    if translated != host and NAME.fullmatch(translated):
        return f"give its ASCII form, {translated}"
    return "give one such as server.example.org or 192.0.2.1"
