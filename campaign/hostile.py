"""Nodes that lie: one node of a federation in memory spoils its replies, and the server must not fall over."""

from __future__ import annotations

import logging
import random
import sys
from typing import Any

import numpy as np

from campaign.cases import Part
from campaign.process import Child

METHODS = (
    "fedavg", "scaffold", "feddyn", "ccvr", "fedagg(mode=fixed_point)", "fednova", "fedgen", "moon", "fnr", "fedavgm",
    "latest", "feddyn+trimmed", "norm_bound+fedcm", "norm_bound(2, drop=true)", "multikrum(1)", "topk(0.1)+quantize(4)",
    "scaffold+quantize",
)  # fmt: skip
BOUNDED = ("scaffold+median", "norm_bound(2)+median", "geometric_median", "scaffold+centred_clipping")
FARTHEST = 10.0  # times as far as without a hostile node may a model of these move
COUNTS = (-1, 0, 1, 2**31, 2**47, 10**18, 2**62, -(2**62))
NUMBERS = (*COUNTS, True, 0.5, float("nan"), float("inf"), "many", "[/x] in the log", b"\x80")
FACTORS = (-1.0, -100.0, 1e30, 0.0)  # of a lie that is well formed
FILLS = (np.nan, np.inf, -np.inf, -1.0, 3e38, -3e38, 1e-45, 0.0)


def lie(part: Part) -> None:
    for _ in part.rounds():
        method, seed = part.random.choice(METHODS + BOUNDED), part.random.randrange(2**32)
        ended = Child(lambda method=method, seed=seed: federation(method, seed)).wait()
        if ended.code and not ended.refused:
            part.find(f"{method}, seed {seed}", ended)
        else:
            part.count("ended with an error" if ended.code else "ended normally")


def federation(method: str, seed: int) -> None:
    """Run a method with four nodes, the second of which spoils about half of its replies."""
    from helpers.flower_toys import SMALL, MemoryGrid, on_grid
    from holdfast.core.errors import HoldfastError
    from holdfast.flower.messages import ENROL

    logging.disable()
    numbers = random.Random(seed)
    settings = {**SMALL, "model": "linear", "cohort": 4, "rounds": 2, "epochs": 1, "public": 0.05}

    def trouble(request: Any, reply: Any) -> Any:
        is_hostile = grid.contexts[request.metadata.dst_node_id].node_config["partition-id"] == 1
        share = 0.1 if request.metadata.message_type == ENROL else 0.5  # a node that is refused can do no more harm
        return spoil(numbers, request, reply) if is_hostile and numbers.random() < share else reply

    grid = MemoryGrid({**settings, "method": method}, 4, trouble)
    try:
        result = on_grid(method, grid, **settings, patience=0.1, timeout=0.1)
    except HoldfastError as error:
        sys.stderr.write(f"holdfast: {error}\n")
        sys.exit(2)
    if not np.isfinite(result.w.numpy()).all():
        raise ArithmeticError("the model is not finite")
    if method in BOUNDED:
        honest = on_grid(method, MemoryGrid({**settings, "method": method}, 4), **settings)
        moved, usual = (float((r.w - r.net.initial).norm()) for r in (result, honest))
        if moved > FARTHEST * usual:
            raise ArithmeticError(f"the model moved {moved / usual:.3g} times as far as without a hostile node")


def spoil(numbers: random.Random, request: Any, reply: Any) -> Any:
    """Return another reply: silence, an error, no records, other numbers, other arrays, or a well-formed lie."""
    from flwr.app import Message, RecordDict

    kind = numbers.choice(("silence", "error", "nothing", "number", "number", "array", "array", "lie", "lie", "lie"))
    if kind == "silence" or not reply.has_content():
        return None
    if kind == "error":
        return numbers.choice(("see [/x] in the log", "two\nlines", ""))
    content = RecordDict(dict(reply.content)) if kind != "nothing" else RecordDict({})
    if kind == "number" and "numbers" in content:
        content["numbers"] = other_numbers(numbers, content["numbers"])
    if kind == "array" and "arrays" in content and len(content["arrays"]):
        content["arrays"] = other_arrays(numbers, content["arrays"])
    if kind == "lie" and "arrays" in content:
        content["arrays"] = multiplied(content["arrays"], numbers.choice(FACTORS))
    return Message(content, reply_to=request)


def multiplied(record: Any, factor: float) -> Any:
    """Multiply all arrays of numbers that are not whole."""
    from flwr.app import Array, ArrayRecord

    arrays = {name: array.numpy() for name, array in record.items()}
    with np.errstate(all="ignore"):
        new = {k: v * v.dtype.type(factor) if v.dtype.kind == "f" else v for k, v in arrays.items()}
    return ArrayRecord({name: Array(np.asarray(values)) for name, values in new.items()})


def other_numbers(numbers: random.Random, record: Any) -> Any:
    """Replace, lengthen or delete one field."""
    from flwr.app import ConfigRecord

    fields, name = dict(record), numbers.choice(list(record))
    value = numbers.choice(NUMBERS)
    how = numbers.choice(("replace", "list", "double", "delete", "add"))
    if how == "delete":
        del fields[name]
    elif how == "double" and isinstance(fields[name], list):
        fields[name] = fields[name] * 2
    elif how == "add":
        fields["token"] = value
    else:
        fields[name] = [value] if how == "list" or isinstance(fields[name], list) else value
    return ConfigRecord(fields)


def other_arrays(numbers: random.Random, record: Any) -> Any:
    """Change the values, the shape, the type, the bytes or the name of one array."""
    from flwr.app import Array, ArrayRecord

    arrays, name = dict(record), numbers.choice(list(record))
    array = arrays.pop(name)
    well_formed = numbers.random() < 0.5  # a lie that only its values give away
    how = numbers.choice(
        ("fill", "times", "one") if well_formed else ("shape", "type", "bytes", "cut", "object", "rename", "delete")
    )
    values = array.numpy().copy()
    if how in ("fill", "one"):
        with np.errstate(all="ignore"):
            fill = np.array(numbers.choice(FILLS)).astype(values.dtype)
        values.reshape(-1)[: 1 if how == "one" else None] = fill
        arrays[name] = Array(values)
    elif how == "times":
        with np.errstate(all="ignore"):
            arrays[name] = Array(np.asarray(values * numbers.choice(FACTORS)).astype(values.dtype))
    elif how == "shape":
        arrays[name] = Array(values.reshape(-1)[: values.size // 2])
    elif how == "type":
        arrays[name] = Array(values.astype(numbers.choice((np.float64, np.int64, np.float16, np.uint8))))
    elif how == "bytes":
        data = bytearray(array.data)
        data[numbers.randrange(len(data))] ^= 1 << numbers.randrange(8)
        arrays[name] = Array(array.dtype, array.shape, array.stype, bytes(data))
    elif how == "cut":
        arrays[name] = Array(array.dtype, array.shape, array.stype, array.data[: numbers.randrange(len(array.data))])
    elif how == "object":
        arrays[name] = Array("object", array.shape, array.stype, b"\x80\x04K\x01.")
    elif how == "rename":
        arrays[numbers.choice(("", "../x", "9/delta", "1/uploads/x/y"))] = array
    return ArrayRecord(arrays)
