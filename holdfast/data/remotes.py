"""Where the data sets are published, and the checksums of their files.

MNIST, Fashion-MNIST, EMNIST and CIFAR: the addresses and MD5 sums that torchvision uses. CINIC-10 and Tiny ImageNet
are not in torchvision: addresses of their authors, MD5 sums on which several independent loaders agree. Sizes are
those the servers state; 0 where none could be confirmed. MD5 guards against damage, not against forgery.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Remote:
    """A file to fetch, and what to do with it."""

    file: str  # where it is saved, below the data folder
    urls: tuple[str, ...]  # the same file at several places, the best first
    md5: str
    size: int = 0  # in bytes; 0: unknown
    into: str = ""  # for an archive: the folder, below the data folder, that its content goes to
    root: str = ""  # for an archive: the folder inside it that holds the content
    only: tuple[str, ...] = ()  # for an archive: the names wanted, below root; empty: all


def _idx(folder: str, mirrors: tuple[str, ...], files: dict[str, tuple[str, int]]) -> tuple[Remote, ...]:
    return tuple(
        Remote(f"{folder}/raw/{name}-ubyte.gz", tuple(f"{m}{name}-ubyte.gz" for m in mirrors), md5, size)
        for name, (md5, size) in files.items()
    )


LETTERS = tuple(
    f"emnist-letters-{part}-{kind}-ubyte.gz" for part in ("train", "test") for kind in ("images-idx3", "labels-idx1")
)

REMOTES: dict[str, tuple[Remote, ...]] = {
    "mnist": _idx(
        "MNIST",
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/"),
        {
            "train-images-idx3": ("f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
            "train-labels-idx1": ("d53e105ee54ea40749a09fcbcd1e9432", 28_881),
            "t10k-images-idx3": ("9fb629c4189551a2d022fa330f9573f3", 1_648_877),
            "t10k-labels-idx1": ("ec29112dd5afa0611ce80d1b7f02629c", 4_542),
        },
    ),
    "fashion-mnist": _idx(
        "FashionMNIST",
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        ),
        {
            "train-images-idx3": ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
            "train-labels-idx1": ("25c81989df183df01b3e8a0aad5dffbe", 29_515),
            "t10k-images-idx3": ("bef4ecab320f06d8554ea6380940ec79", 4_422_102),
            "t10k-labels-idx1": ("bb300cfdad3c16e7a12a480ee83cd310", 5_148),
        },
    ),
    "emnist-letters": (
        Remote(
            "EMNIST/raw/gzip.zip",
            ("https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",),
            "58c8d27c78d21e728a6bc7b3cc06412e",
            561_753_746,
            into="EMNIST/raw",
            root="gzip",
            only=LETTERS,
        ),
    ),
    "cifar10": (
        Remote(
            "cifar-10-python.tar.gz",
            ("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",),
            "c58f30108f718f92721af3b95e74349a",
            170_498_071,
            into="cifar-10-batches-py",
            root="cifar-10-batches-py",
        ),
    ),
    "cifar100": (
        Remote(
            "cifar-100-python.tar.gz",
            ("https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",),
            "eb9058c3a382ffc7106e4002c42a8d85",
            169_001_437,
            into="cifar-100-python",
            root="cifar-100-python",
        ),
    ),
    "cinic10": (
        Remote(
            "CINIC-10.tar.gz",
            (
                "https://datashare.ed.ac.uk/bitstream/handle/10283/3192/CINIC-10.tar.gz",
                "https://datashare.is.ed.ac.uk/bitstream/handle/10283/3192/CINIC-10.tar.gz",
            ),
            "6ee4d0c996905fe93221de577967a372",
            into="CINIC-10",
        ),
    ),
    "tiny-imagenet": (
        Remote(
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
    ),
}
