"""Checkpoints that survive a kill: safetensors and JSON, written aside and renamed, never pickle.

    checkpoint/round-000007.json               the manifest, written last: names every file with its checksum
    checkpoint/server-000007.safetensors       the global model and what the parts keep at the server
    checkpoint/client-000012-000005.safetensors   what the parts keep at client 12, as of round 5

The two newest manifests are kept, and that of the best round by validation data. Only clients that changed are written
again. The manifest also covers the settings
and the history of the run, and itself: whatever was changed since, other than by Holdfast, is refused.
"""

from __future__ import annotations

import json
import re
import zlib
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.core.files import write_atomically
from holdfast.core.tensors import PerPart, Tensors, flatten, unflatten
from holdfast.method.renamed import RENAMED
from holdfast.runs.snapshot import MODEL, Snapshot
from holdfast.training.client_states import ClientStates
from holdfast.training.server import Server

FORMAT = 3  # of the manifest; 1, which has no number, may use part names that were changed since; 3 covers the run
COVERED_SINCE = 3  # the first format whose manifest covers the run and itself
KEEP = 2
COORDINATOR = "flower"  # the name of the coordinator's own state, beside the parts' states; of no use without nodes
NAME = re.compile(r"(server-\d{6,}|client-\d{6,}-\d{6,})\.safetensors")


class Manifest(NamedTuple):
    """The files of a checkpoint with their checksums, and the checksums of what they belong to."""

    round: int
    server: dict[str, int]
    clients: dict[str, int]
    run: dict[str, int]  # what of the run -> its checksum after this round
    format: int = FORMAT


def save(folder: Path, snapshot: Snapshot, run: dict[str, int] | None = None, best: int | None = None) -> None:
    """Write the state after a round. A reader sees the old checkpoint or the new one, never a mixture.

    Args:
        folder: The folder of the checkpoints.
        snapshot: The state.
        run: The checksums of the rest of the run, such as its history.
        best: The best round so far, whose checkpoint is kept as well.
    """
    folder.mkdir(parents=True, exist_ok=True)
    newest = _manifests(folder)[-1:]
    files = _read_manifest(newest[0]).clients if newest else {}
    files = {f: c for f, c in files.items() if _client(f) not in snapshot.clients}
    name = f"server-{snapshot.round:06d}.safetensors"
    checksum = _write(folder / name, snapshot.server)
    for i in sorted(snapshot.clients):
        own = f"client-{i:06d}-{snapshot.round:06d}.safetensors"
        files[own] = _write(folder / own, flatten(snapshot.clients[i]))
    manifest = Manifest(snapshot.round, {name: checksum}, files, run or {})
    write_atomically(folder / manifest_name(snapshot.round), _to_json(manifest))
    _clean(folder, best)


def load(folder: Path, server: Server, clients: ClientStates | None, round: int | None = None) -> int:
    """Bring server and clients to the newest checkpoint; without ``clients``, the server alone.

    States must be exactly those that the method keeps; names from an earlier version are translated.

    Args:
        folder: The folder of the checkpoints.
        server: The server of the run, as it starts.
        clients: The client states of the run, as they start; None: they are not read.
        round: The round whose checkpoint is wanted; None: the newest.

    Returns:
        The round of the checkpoint; 0 if there is none.
    """
    manifests = [path for path in _manifests(folder) if round is None or path.name == manifest_name(round)]
    if not manifests:
        return 0
    path = manifests[-1]
    manifest = _read_manifest(path)
    device = server.w.device

    def read(name: str, checksum: int) -> tuple[Tensors, bool]:
        flat = {k: t.to(device) for k, t in _read(folder / name, checksum, path, manifests).items()}
        today = {_todays_name(k): t for k, t in flat.items()} if manifest.format == 1 else flat
        return today, today.keys() != flat.keys()

    for name, checksum in manifest.server.items():
        flat, _ = read(name, checksum)
        _check_model(folder / name, flat[MODEL], server.w)
        server.w = flat.pop(MODEL)
        states = unflatten(flat)
        if clients is None:
            states.pop(COORDINATOR, None)
        _check_states(folder / name, states, server.states, _free_form(server))
        server.states = server.states | states
    if clients is None:
        return manifest.round
    row = clients.initial(server.w) if manifest.clients else {}
    for name, checksum in manifest.clients.items():
        flat, translated = read(name, checksum)
        state = unflatten(flat)
        _check_states(folder / name, state, row)
        clients.rows[_client(name)] = state
        if translated:
            clients.changed.add(_client(name))  # to be written again under today's names
    return manifest.round


def _check_model(path: Path, found: Tensor, expected: Tensor) -> None:
    if found.shape != expected.shape or found.dtype != expected.dtype:
        raise HoldfastError(
            f"{path} holds a model of {len(found)} parameters ({found.dtype}), "
            f"but this run's model has {len(expected)} ({expected.dtype}): resume with the model it was started with"
        )


def _check_states(path: Path, found: PerPart, expected: PerPart, free_form: frozenset[str] = frozenset()) -> None:
    """Refuse states that are not those of the method; parts in ``free_form`` may keep whatever they like."""
    flat = flatten({part: tensors for part, tensors in found.items() if part not in free_form})
    known = flatten({part: tensors for part, tensors in expected.items() if part not in free_form})
    for name in sorted(flat.keys() - known.keys()):
        raise HoldfastError(f"{path} holds the state {name}, which this run's method does not have: {_remedy(name)}")
    for name in sorted(known.keys() - flat.keys()):
        raise HoldfastError(f"{path} lacks the state {name} of this run's method: {_remedy(name)}")
    for name, t in flat.items():
        if t.shape != known[name].shape or t.dtype != known[name].dtype:
            shapes = [f"{list(s.shape)} ({s.dtype})" for s in (t, known[name])]
            raise HoldfastError(f"{path} holds the state {name} of shape {shapes[0]}, not {shapes[1]}: {_remedy(name)}")


def _remedy(name: str) -> str:
    own = name.startswith(f"{COORDINATOR}/")
    return "resume with --secure or without, as it was started" if own else "resume with the method it was started with"


def _free_form(server: Server) -> frozenset[str]:
    """Return the parts whose state at the server is made during the run, not before it."""
    made_later = {p.name for hook in ("absorb", "tune", "digest") for p in server.method.filling(hook)}
    return frozenset(made_later - server.states.keys())


def _todays_name(key: str) -> str:
    """Rename ``part/name`` of format 1 if the part had another name then."""
    part, slash, name = key.partition("/")
    return RENAMED.get(part, part) + slash + name


def newest(folder: Path) -> Manifest | None:
    """Return the manifest of the newest checkpoint, or None if there is none."""
    manifests = _manifests(folder)
    return _read_manifest(manifests[-1]) if manifests else None


def readable(folder: Path) -> list[Manifest]:
    """Return the manifests that can be read, the newest first."""
    found = []
    for path in reversed(_manifests(folder)):
        with suppress(HoldfastError):
            found.append(_read_manifest(path))
    return found


def _to_json(manifest: Manifest) -> str:
    """Write a manifest with a checksum of everything else in it."""
    content = manifest._asdict()
    return json.dumps(content | {"checksum": zlib.crc32(json.dumps(content, sort_keys=True).encode())})


def _client(name: str) -> int:
    return int(name.split("-")[1])


def _manifests(folder: Path) -> list[Path]:
    return sorted(folder.glob("round-*.json"))


def _read_manifest(path: Path) -> Manifest:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError("no object")
        version = int(found.get("format", 1))
        manifest = Manifest(
            int(found["round"]), dict(found["server"]), dict(found["clients"]), dict(found.get("run", {})), version
        )
        names = [*manifest.server, *manifest.clients]
        if not manifest.server or not all(NAME.fullmatch(name) for name in names):
            raise ValueError("names of files")
        if path.name != manifest_name(manifest.round):
            raise ValueError("round")
        covered = version >= COVERED_SINCE or "checksum" in found
        if covered and version <= FORMAT and json.loads(_to_json(manifest)) != found:
            raise ValueError("checksum")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(path, path, _manifests(path.parent)) from error
    if manifest.format > FORMAT:
        raise HoldfastError(
            f"{path} has format {manifest.format}, but this version reads up to {FORMAT}: upgrade Holdfast"
        )
    return manifest


def _write(path: Path, tensors: dict[str, Tensor]) -> int:
    from safetensors.torch import save as encode

    content = encode({k: t.detach().cpu().contiguous() for k, t in tensors.items()})
    write_atomically(path, content)
    return zlib.crc32(content)


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
            f"{path} is missing or damaged and there is no earlier checkpoint: start over with --overwrite"
        )
    last = int(earlier[-1].stem.split("-")[1])
    return HoldfastError(
        f"{path} is missing or damaged; the last good round is {last}: delete {manifest} to resume from it"
    )


def manifest_name(round: int) -> str:
    """Return the name of the manifest of a round."""
    return f"round-{round:06d}.json"


def _clean(folder: Path, best: int | None) -> None:
    """Delete manifests beyond the newest two and the best, and files that none of these names; a folder stays."""
    manifests = _manifests(folder)
    kept = [m for m in manifests[:-KEEP] if best is not None and m.name == manifest_name(best)] + manifests[-KEEP:]
    named = {name for m in map(_read_manifest, kept) for name in (*m.server, *m.clients)}
    unnamed = [path for path in folder.glob("*.safetensors") if path.name not in named]
    for path in [*(m for m in manifests if m not in kept), *unnamed]:
        if not path.is_dir():
            path.unlink()
