"""Image files: find them, class by class, and decode them into one array, each checked before it is decoded."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.errors import HoldfastError

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".ppm", ".pgm")
# Named, so that Pillow tries no other reader on a file that lies about its kind (one starts Ghostscript).
FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "PPM")
SIDE = 8192  # pixels
LIMIT = 32 << 30  # bytes of one decoded set


Labelled = list[tuple[Path, int]]  # an image and its class


def image_files(folder: Path) -> list[Path]:
    """The images right inside a folder, by name; other files are passed over."""
    with os.scandir(folder) as entries:
        names = sorted(e.name for e in entries if e.name.lower().endswith(ENDINGS) and e.is_file())
    return [folder / name for name in names]


def class_folders(folder: Path) -> dict[str, Path]:
    """The folders right inside a folder, by name: one per class. Hidden ones are none."""
    with os.scandir(folder) as entries:
        names = sorted(e.name for e in entries if e.is_dir() and not e.name.startswith("."))
    return {name: folder / name for name in names}


def labelled(folder: Path, classes: Sequence[str], inner: str = "") -> Labelled:
    """The images of ``folder/<class>/<inner>``, class by class; a folder of no known class is an error."""
    extra = [name for name in class_folders(folder) if name not in classes]
    if extra:
        raise HoldfastError(f"{folder / extra[0]}: no such class in the training folder; rename or remove it")
    found: Labelled = []
    for label, name in enumerate(classes):
        inside = folder / name / inner
        found += [(file, label) for file in image_files(inside)] if inside.is_dir() else []
    if not found:
        raise HoldfastError(f"{folder}: no images in it; expected <class>/*.png, *.jpg or the like")
    return found


def annotated(folder: Path, classes: Sequence[str]) -> Labelled:
    """Tiny ImageNet's validation images: ``val_annotations.txt`` has a line of name, class, box for each."""
    file = folder / "val_annotations.txt"
    label_of = {name: label for label, name in enumerate(classes)}
    found: Labelled = []
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise HoldfastError(f"{file}: cannot be read ({type(error).__name__}); remove it and fetch it again") from error
    for number, line in enumerate(lines, 1):
        name, label, *_ = [*line.split("\t"), "", ""]
        if label not in label_of or not name or Path(name).name != name:
            raise HoldfastError(
                f"{file}, line {number}: expected an image, a tab and a class; remove it and fetch it again"
            )
        found.append((folder / "images" / name, label_of[label]))
    missing = [path for path, _ in found if not path.is_file()]
    if missing or not found:
        what = f"{missing[0].name} is not in {folder / 'images'}" if missing else "it is empty"
        raise HoldfastError(f"{file}: {what}; remove it and fetch it again")
    return found


def decode_images(files: Sequence[Path], channels: int = 3, size: int = 0) -> np.ndarray:
    """Images as uint8 [n, channels, height, width]; scaled to ``size``, or all as large as the first."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Pillow warns of images that are too large or half broken
        first = _decode(files[0], channels, size)
        if first.nbytes * len(files) > LIMIT:
            shape = "x".join(map(str, first.shape[1:]))
            raise HoldfastError(
                f"{files[0].parent}: {len(files)} images of {shape} pixels do not fit; scale all with size=64"
            )
        images = np.empty((len(files), *first.shape), np.uint8)
        images[0] = first
        for i, file in enumerate(files[1:], 1):
            images[i] = _decode(file, channels, size, first.shape)
    return images


def _decode(file: Path, channels: int, size: int, shape: tuple[int, ...] | None = None) -> np.ndarray:
    from PIL import Image

    try:
        with Image.open(file, formats=FORMATS) as image:
            _check_size(file, image.size, None if size else shape)
            pixels = image.convert("RGB" if channels == 3 else "L")
            if size and pixels.size != (size, size):
                pixels = pixels.resize((size, size), Image.Resampling.BILINEAR)
            array: np.ndarray[Any, Any] = np.asarray(pixels, np.uint8)
    except HoldfastError:
        raise
    except Exception as error:  # Pillow's readers fail in many ways on damaged files
        raise HoldfastError(f"{file}: not a whole image ({type(error).__name__}); replace or remove it") from error
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)


def _check_size(file: Path, size: tuple[int, int], shape: tuple[int, ...] | None) -> None:
    """Refuse by the header, before any pixel is decoded."""
    width, height = size
    if max(size) > SIDE:
        raise HoldfastError(f"{file}: {width}x{height} pixels, at most {SIDE} a side are read; scale it down")
    if shape is not None and (height, width) != shape[1:]:
        expected = f"{shape[2]}x{shape[1]} as the first image"
        raise HoldfastError(f"{file}: {width}x{height} pixels, expected {expected}; scale all with size=64")
