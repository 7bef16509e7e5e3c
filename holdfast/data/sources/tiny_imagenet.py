"""Tiny ImageNet: 200 classes of ImageNet at 64x64 pixels, as folders of JPEG files.

The address is the authors' own. Several independent loaders agree on the MD5 checksum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from holdfast.core.errors import HoldfastError
from holdfast.data.dataset import DataSet
from holdfast.data.formats.images import Labelled, class_folders, labelled_images
from holdfast.data.source import Download, Source, check_present, normalise_param, with_statistics
from holdfast.data.sources._labelled import load_labelled


@dataclass(frozen=True)
class TinyImagenet(Source):
    """200 classes of ImageNet at 64x64 (Stanford CS231n), 100,000 training images.

    The 10,000 images of ``val`` are the test set, since the labels of ``test`` are not published.
    """

    name: ClassVar[str] = "tiny-imagenet"
    # In common use, computed from the 100,000 training images.
    mean: ClassVar[tuple[float, ...]] = (0.4802, 0.4481, 0.3975)
    std: ClassVar[tuple[float, ...]] = (0.2770, 0.2691, 0.2821)
    downloads: ClassVar[tuple[Download, ...]] = (
        Download(
            "tiny-imagenet-200.zip",
            (
                "https://cs231n.stanford.edu/tiny-imagenet-200.zip",
                "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
            ),
            "90528d7ca1a48142e341f4ef8d21d0de",
            248_100_043,
            into="tiny-imagenet-200",
            root="tiny-imagenet-200",
        ),
    )

    normalise: str = normalise_param()

    def place(self, data_dir: Path) -> Path:
        return data_dir / "tiny-imagenet-200"

    def missing(self, data_dir: Path) -> list[str]:
        root = self.place(data_dir)
        return [name for name in ("train", "val/images", "val/val_annotations.txt") if not (root / name).exists()]

    def parts(self, data_dir: Path) -> tuple[Labelled, Labelled, list[str]]:
        """Return the training images, the test images and the class names."""
        check_present(self, data_dir)
        root = self.place(data_dir)
        names = list(class_folders(root / "train"))
        return labelled_images(root / "train", names, "images"), annotated_images(root / "val", names), names

    def count(self, data_dir: Path) -> tuple[int, int]:
        train, test, _ = self.parts(data_dir)
        return len(train), len(test)

    def load(self, data_dir: Path) -> DataSet:
        data = load_labelled(self.name, *self.parts(data_dir))
        return with_statistics(data, self.normalise, self.mean, self.std)


def annotated_images(folder: Path, classes: Sequence[str]) -> Labelled:
    """List the validation images: ``val_annotations.txt`` has a line with name, class and box for each."""
    file = folder / "val_annotations.txt"
    label_of = {name: label for label, name in enumerate(classes)}
    images: Labelled = []
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise HoldfastError(
            f"{file}: cannot be read ({type(error).__name__}); delete it and download it again"
        ) from error
    for number, line in enumerate(lines, 1):
        name, label, *_ = [*line.split("\t"), "", ""]
        if label not in label_of or not name or Path(name).name != name:
            raise HoldfastError(
                f"{file}, line {number}: expected an image, a tab and a class; delete it and download it again"
            )
        images.append((folder / "images" / name, label_of[label]))
    missing = [path for path, _ in images if not path.is_file()]
    if missing or not images:
        problem = f"{missing[0].name} is not in {folder / 'images'}" if missing else "it is empty"
        raise HoldfastError(f"{file}: {problem}; delete it and download it again")
    return images
