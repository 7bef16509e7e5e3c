"""Checkpoints that a killed run survives: safetensors and JSON, written aside and renamed, never pickle.

    checkpoint/round-000007.json               the manifest, written last: names every file with its checksum
    checkpoint/server-000007.safetensors       the global model and the parts' states at the server
    checkpoint/client-000012-000005.safetensors   the parts' states at client 12, as of round 5

The two newest manifests are kept. Only clients that changed are written again.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from pathlib import Path
from typing import Any

from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.engines.client_update import PerPart
from holdfast.training.client_states import ClientStates
from holdfast.training.server import Server

KEEP = 2
MODEL = "model"
NAME = re.compile(r"(server-\d{6,}|client-\d{6,}-\d{6,})\.safetensors")


def save(folder: Path, round: int, server: Server, clients: ClientStates) -> None:
    """Write the state after a round. Whoever reads meanwhile sees the old checkpoint or the new one, whole."""
    folder.mkdir(parents=True, exist_ok=True)
    newest = _manifests(folder)[-1:]
    files: dict[str, int] = _read_manifest(newest[0])["clients"] if newest else {}
    files = {f: c for f, c in files.items() if _client(f) not in clients.changed}
    flat = {MODEL: server.w} | flatten(server.states)
    name = f"server-{round:06d}.safetensors"
    manifest: dict[str, Any] = {
        "round": round,
        "server": {name: _write(folder / name, flat)},
        "clients": files,
    }
    for i in sorted(clients.changed):
        name = f"client-{i:06d}-{round:06d}.safetensors"
        files[name] = _write(folder / name, flatten(clients.rows[i]))
    _replace(folder / f"round-{round:06d}.json", json.dumps(manifest).encode())
    clients.changed.clear()
    _clean(folder)


def load(folder: Path, server: Server, clients: ClientStates) -> int:
    """Bring server and clients to the newest checkpoint; returns its round, 0 if there is none."""
    manifests = _manifests(folder)
    if not manifests:
        return 0
    path = manifests[-1]
    manifest = _read_manifest(path)
    device = server.w.device

    def read(name: str, checksum: int) -> dict[str, Tensor]:
        return {k: t.to(device) for k, t in _read(folder / name, checksum, path, manifests).items()}

    for name, checksum in manifest["clients"].items():
        clients.rows[_client(name)] = unflatten(read(name, checksum))
    for name, checksum in manifest["server"].items():
        flat = read(name, checksum)
        if flat[MODEL].shape != server.w.shape or flat[MODEL].dtype != server.w.dtype:
            raise HoldfastError(
                f"{folder / name} holds a model of {len(flat[MODEL])} parameters ({flat[MODEL].dtype}), "
                f"but this run's has {len(server.w)} ({server.w.dtype})"
            )
        server.w = flat.pop(MODEL)
        server.states = server.states | unflatten(flat)
    return int(manifest["round"])


def _client(name: str) -> int:
    return int(name.split("-")[1])


def flatten(states: PerPart) -> dict[str, Tensor]:
    """One level of names: ``part/name``."""
    return {f"{part}/{name}": t for part, tensors in states.items() for name, t in tensors.items()}


def unflatten(flat: dict[str, Tensor]) -> PerPart:
    states: PerPart = {}
    for key, t in flat.items():
        part, name = key.split("/", 1)
        states.setdefault(part, {})[name] = t
    return states


def _manifests(folder: Path) -> list[Path]:
    return sorted(folder.glob("round-*.json"))


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        names = [*manifest["server"], *manifest["clients"]]
        if not manifest["server"] or not all(NAME.fullmatch(name) for name in names):
            raise ValueError("names of files")
        return {
            "round": int(manifest["round"]),
            "server": dict(manifest["server"]),
            "clients": dict(manifest["clients"]),
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(path, path, _manifests(path.parent)) from error


def _write(path: Path, tensors: dict[str, Tensor]) -> int:
    from safetensors.torch import save as encode

    content = encode({k: t.detach().cpu().contiguous() for k, t in tensors.items()})
    _replace(path, content)
    return zlib.crc32(content)


def _replace(path: Path, content: bytes) -> None:
    aside = path.with_suffix(".part")
    aside.write_bytes(content)
    os.replace(aside, path)


def _read(path: Path, checksum: int, manifest: Path, manifests: list[Path]) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load as decode

    try:
        content = path.read_bytes()
        if zlib.crc32(content) != checksum:
            raise _damaged(path, manifest, manifests)
        return dict(decode(content))
    except (OSError, SafetensorError) as error:
        raise _damaged(path, manifest, manifests) from error


def _damaged(path: Path, manifest: Path, manifests: list[Path]) -> HoldfastError:
    earlier = [m for m in manifests if m < manifest and path.name.encode() not in m.read_bytes()]
    if not earlier:
        return HoldfastError(
            f"{path} is missing or damaged and no earlier checkpoint is left: start anew with --overwrite"
        )
    last = int(earlier[-1].stem.split("-")[1])
    return HoldfastError(
        f"{path} is missing or damaged; the last good round is {last}: delete {manifest} to resume from it"
    )


def _clean(folder: Path) -> None:
    """Delete manifests beyond the newest two, and files that none of these names."""
    manifests = _manifests(folder)
    for old in manifests[:-KEEP]:
        old.unlink()
    kept = [_read_manifest(m) for m in manifests[-KEEP:]]
    named = {name for m in kept for part in ("server", "clients") for name in m[part]}
    for path in folder.glob("*.safetensors"):
        if path.name not in named:
            path.unlink()
