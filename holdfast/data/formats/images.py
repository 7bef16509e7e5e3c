"""Image files: find them class by class, and decode them into one array. Each is checked before it is decoded."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.errors import HoldfastError

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".ppm", ".pgm")
# Named, so that Pillow tries no other reader on a mislabelled file (one of them starts Ghostscript).
FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "PPM")
SIDE = 8192  # pixels
LIMIT = 32 << 30  # bytes of one decoded set

Labelled = list[tuple[Path, int]]  # an image and its class


def image_files(folder: Path) -> list[Path]:
    """List the images directly inside a folder, sorted by name; other files are ignored."""
    with os.scandir(folder) as entries:
        names = sorted(e.name for e in entries if e.name.lower().endswith(ENDINGS) and e.is_file())
    return [folder / name for name in names]


def class_folders(folder: Path) -> dict[str, Path]:
    """List the folders directly inside a folder, sorted by name: one per class. Hidden folders are ignored."""
    with os.scandir(folder) as entries:
        names = sorted(e.name for e in entries if e.is_dir() and not e.name.startswith("."))
    return {name: folder / name for name in names}


def class_names(folders: Iterable[str]) -> list[str]:
    """Return names that can be printed; bytes of a folder's name that are not UTF-8 become ``\\xff``."""
    return [os.fsencode(name).decode("utf-8", "backslashreplace") for name in folders]


def labelled_images(folder: Path, classes: Sequence[str], inner: str = "") -> Labelled:
    """List the images of ``folder/<class>/<inner>``, class by class.

    Args:
        folder: The folder with one folder per class.
        classes: The class names, in the order of their labels; any other folder is an error.
        inner: The folder inside each class folder that holds the images, if any.

    Returns:
        Files and their labels.
    """
    extra = [name for name in class_folders(folder) if name not in classes]
    if extra:
        raise HoldfastError(f"{folder / extra[0]}: no class of this name in the training folder; rename or delete it")
    images: Labelled = []
    for label, name in enumerate(classes):
        inside = folder / name / inner
        images += [(file, label) for file in image_files(inside)] if inside.is_dir() else []
    if not images:
        raise HoldfastError(f"{folder}: no images in it; put PNG or JPEG files into {folder}/<class>/")
    return images


def decode_images(files: Sequence[Path], channels: int = 3, size: int = 0) -> np.ndarray:
    """Decode images into one array.

    Args:
        files: The image files.
        channels: 3 for colour, 1 for grey.
        size: The side that every image is scaled to; 0 if all are as large as the first.

    Returns:
        Pixels: uint8 [n, channels, height, width].
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Pillow warns of images that are too large or damaged
        first = _decode(files[0], channels, size)
        if first.nbytes * len(files) > LIMIT:
            shape = "x".join(map(str, first.shape[1:]))
            raise HoldfastError(
                f"{files[0].parent}: {len(files)} images of {shape} pixels do not fit into memory; "
                "scale all, as with size=64"
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
        raise HoldfastError(f"{file}: not a complete image ({type(error).__name__}); replace or delete it") from error
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)


def _check_size(file: Path, size: tuple[int, int], shape: tuple[int, ...] | None) -> None:
    """Raise an error if the header states a wrong size, before any pixel is decoded."""
    width, height = size
    if max(size) > SIDE:
        raise HoldfastError(f"{file}: {width}x{height} pixels, expected at most {SIDE} per side; scale it down")
    if shape is not None and (height, width) != shape[1:]:
        expected = f"{shape[2]}x{shape[1]} like the first image"
        raise HoldfastError(f"{file}: {width}x{height} pixels, expected {expected}; scale all, as with size=64")
