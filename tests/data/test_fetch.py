"""Downloads from a server on this machine: complete, resumed, wrong, refused; and unpacking."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from helpers.data_files import write_cifar10, write_idx
from helpers.exact_errors import raises_exactly
from holdfast.core.errors import HoldfastError
from holdfast.data import fetch as fetching
from holdfast.data.fetch import fetch
from holdfast.data.formats import archives
from holdfast.data.formats.archives import unpack
from holdfast.data.sources import Download, load, sources


class Server(ThreadingHTTPServer):
    """Serves bytes by path and notes every request; can lack ranges, hide the length, or stop early."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, str]] = []
        self.ranges = True
        self.stop_after = 0
        self.length = True

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{path}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range", "")
        self.server.asked.append((self.path, wanted))
        content = self.server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and self.server.ranges else 0
        if start >= len(content) > 0:
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if self.server.length:
            self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start : self.server.stop_after or None])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(fetching, "TIMEOUT", 5.0)
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join(timeout=5)


def publish(monkeypatch: pytest.MonkeyPatch, name: str, *downloads: Download) -> None:
    monkeypatch.setattr(sources()[name], "downloads", downloads)


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def packed_cifar(tmp_path: Path) -> bytes:
    """A small CIFAR-10 in a tar.gz like the published one."""
    write_cifar10(tmp_path / "made" / "cifar-10-batches-py")
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        tar.add(tmp_path / "made" / "cifar-10-batches-py", "cifar-10-batches-py")
    return stream.getvalue()


@pytest.fixture
def cifar(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    content = packed_cifar(tmp_path)
    server.files["/cifar.tar.gz"] = content
    folder = "cifar-10-batches-py"
    urls = (server.url("/cifar.tar.gz"),)
    publish(
        monkeypatch, "cifar10", Download("cifar.tar.gz", urls, md5(content), len(content), into=folder, root=folder)
    )
    return content


def test_an_archive_is_fetched_checked_and_unpacked(server: Server, cifar: bytes, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    folder = fetch("cifar10", tmp_path / "data", lambda *step: seen.append(step))
    assert folder == tmp_path / "data" / "cifar-10-batches-py"
    assert len(load("cifar10", tmp_path / "data").y) == 20
    assert seen[-1] == ("cifar.tar.gz", len(cifar), len(cifar))
    assert sorted(p.name for p in (tmp_path / "data").iterdir()) == ["cifar-10-batches-py"]
    fetch("cifar10", tmp_path / "data")  # nothing is missing
    assert len(server.asked) == 1


def test_single_files_are_fetched_and_those_there_are_not(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = tmp_path / "made"
    write_idx(raw, ("train", "t10k"), 10)
    contents = {f.name: f.read_bytes() for f in sorted(raw.iterdir())}
    server.files = {f"/{name}": content for name, content in contents.items()}
    downloads = [
        Download(f"MNIST/raw/{n}", (server.url("/gone"), server.url(f"/{n}")), md5(c)) for n, c in contents.items()
    ]
    publish(monkeypatch, "mnist", *downloads)
    place = tmp_path / "data" / "MNIST" / "raw"
    place.mkdir(parents=True)
    (place / "t10k-images-idx3-ubyte.gz").write_bytes(contents["t10k-images-idx3-ubyte.gz"])
    assert fetch("mnist", tmp_path / "data") == place
    assert len(load("mnist", tmp_path / "data").y) == 20
    assert "/t10k-images-idx3-ubyte.gz" not in [path for path, _ in server.asked]
    assert [path for path, _ in server.asked].count("/gone") == 3  # the first mirror is tried first


def test_a_broken_download_is_resumed(server: Server, cifar: bytes, tmp_path: Path) -> None:
    server.stop_after = len(cifar) // 3
    with raises_exactly(
        f"cannot download {server.url('/cifar.tar.gz')}: the connection broke after {len(cifar) // 3} of {len(cifar)} "
        "bytes; run the command again to resume, or put data_batch_1, data_batch_2, data_batch_3, data_batch_4, "
        f"data_batch_5, test_batch, batches.meta into {tmp_path / 'data' / 'cifar-10-batches-py'}"
    ):
        fetch("cifar10", tmp_path / "data")
    assert (tmp_path / "data" / "cifar.tar.gz.part").read_bytes() == cifar[: len(cifar) // 3]
    server.stop_after = 0
    fetch("cifar10", tmp_path / "data")
    assert server.asked[-1][1] == f"bytes={len(cifar) // 3}-"
    assert len(load("cifar10", tmp_path / "data").y) == 20


def test_a_server_without_ranges_sends_all_again(server: Server, cifar: bytes, tmp_path: Path) -> None:
    server.ranges = False
    part = tmp_path / "data" / "cifar.tar.gz.part"
    part.parent.mkdir()
    part.write_bytes(b"other bytes")
    fetch("cifar10", tmp_path / "data")
    assert len(load("cifar10", tmp_path / "data").y) == 20


def test_a_part_that_is_too_long_starts_again(server: Server, cifar: bytes, tmp_path: Path) -> None:
    part = tmp_path / "data" / "cifar.tar.gz.part"
    part.parent.mkdir()
    part.write_bytes(cifar + b"and more")
    fetch("cifar10", tmp_path / "data")
    assert [wanted for _, wanted in server.asked] == [f"bytes={len(cifar) + 8}-", ""]


def test_a_part_that_is_whole_is_only_checked(server: Server, cifar: bytes, tmp_path: Path) -> None:
    part = tmp_path / "data" / "cifar.tar.gz.part"
    part.parent.mkdir()
    part.write_bytes(cifar)
    fetch("cifar10", tmp_path / "data")
    assert not server.asked


def test_no_length_is_no_obstacle(server: Server, cifar: bytes, tmp_path: Path) -> None:
    server.length = False
    fetch("cifar10", tmp_path / "data")
    assert len(load("cifar10", tmp_path / "data").y) == 20


def test_a_wrong_checksum_is_an_error_and_leaves_nothing(server: Server, cifar: bytes, tmp_path: Path) -> None:
    server.files["/cifar.tar.gz"] = cifar[:-1] + b"!"
    with raises_exactly(
        f"{tmp_path / 'data' / 'cifar.tar.gz'}: checksum {md5(cifar[:-1] + b'!')}, expected {md5(cifar)}; "
        "it was deleted, so download it again"
    ):
        fetch("cifar10", tmp_path / "data")
    assert not list((tmp_path / "data").iterdir())


def test_another_file_at_the_address_is_not_taken(server: Server, cifar: bytes, tmp_path: Path) -> None:
    server.files["/cifar.tar.gz"] = b"<html>we have moved</html>"
    with raises_exactly(
        f"cannot download {server.url('/cifar.tar.gz')}: the file at this address has 26 bytes, not {len(cifar)}; "
        "check the network, or put data_batch_1, data_batch_2, data_batch_3, data_batch_4, data_batch_5, test_batch, "
        f"batches.meta into {tmp_path / 'data' / 'cifar-10-batches-py'}"
    ):
        fetch("cifar10", tmp_path / "data")


def test_no_network_names_the_files_and_the_folder(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.url("/cifar.tar.gz")
    server.shutdown()
    server.server_close()  # nobody listens at that port now
    publish(monkeypatch, "cifar10", Download("cifar.tar.gz", (url,), md5(b""), into="cifar-10-batches-py"))
    with pytest.raises(HoldfastError) as caught:
        fetch("cifar10", tmp_path / "data")
    whole = (
        rf"cannot download {re.escape(url)}: .*refused.*; check the network, or put data_batch_1, data_batch_2, "
        r"data_batch_3, data_batch_4, data_batch_5, test_batch, batches\.meta "
        rf"into {re.escape(str(tmp_path / 'data' / 'cifar-10-batches-py'))}"
    )
    assert re.fullmatch(whole, str(caught.value))


def test_an_archive_with_other_content(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("tiny/words.txt", "no images")
    server.files["/tiny.zip"] = stream.getvalue()
    urls = (server.url("/tiny.zip"),)
    publish(monkeypatch, "tiny-imagenet", Download("tiny.zip", urls, md5(stream.getvalue()), into="tiny-imagenet-200"))
    with raises_exactly(
        "tiny-imagenet: the downloaded archive lacks train, val/images, val/val_annotations.txt; "
        f"put them into {tmp_path / 'data' / 'tiny-imagenet-200'}"
    ):
        fetch("tiny-imagenet", tmp_path / "data")


def test_what_cannot_be_fetched(tmp_path: Path) -> None:
    fetch("digits", tmp_path)  # built in: there is nothing to download
    with raises_exactly(f"folder is not published for download; put <class>/*.png into {tmp_path}/none"):
        fetch(f"folder('{tmp_path}/none')", tmp_path)
    with pytest.raises(HoldfastError, match="unknown data set"):
        fetch("imagenet", tmp_path)


def test_every_published_data_set_can_be_downloaded() -> None:
    published = {name: source.downloads for name, source in sources().items() if source.downloads}
    assert set(published) == set(sources()) - {"digits", "folder", "csv", "parquet", "leaf", "text"}
    for name, downloads in published.items():
        for download in downloads:
            assert re.fullmatch(r"[0-9a-f]{32}", download.md5), name
            assert all(url.startswith(("https://", "http://")) for url in download.urls), name
    for name in ("mnist", "fashion-mnist"):  # the files fetched are those that are read
        missing = sources()[name]().missing(Path("/nowhere"))
        assert [Path(download.file).name for download in published[name]] == missing
    assert list(published["emnist-letters"][0].only) == sources()["emnist-letters"]().missing(Path("/nowhere"))


# Unpacking.


def zipped(path: Path, entries: dict[str, bytes], link: str = "") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
        if link:
            info = zipfile.ZipInfo(link)
            info.external_attr = 0o120777 << 16
            archive.writestr(info, "/etc/passwd")
    return path


def tarred(path: Path, entries: dict[str, bytes], link: str = "") -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in entries.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        if link:
            info = tarfile.TarInfo(link)
            info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(info)
    return path


@pytest.mark.parametrize("pack", [zipped, tarred])
@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "a/../../evil", "a\\..\\..\\evil", "c:evil"])
def test_no_file_leaves_its_folder(tmp_path: Path, pack: object, name: str) -> None:
    archive = pack(tmp_path / "archive", {"good": b"1", name: b"2"})  # type: ignore[operator]
    with raises_exactly(
        f"{archive}: contains {name!r}, which is outside its folder, unlike the published file; "
        "delete it and download it again"
    ):
        unpack(archive, tmp_path / "data" / "out")
    assert not list(tmp_path.rglob("*evil*"))
    assert not list((tmp_path / "data").iterdir())


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_links_are_refused(tmp_path: Path, pack: object) -> None:
    archive = pack(tmp_path / "archive", {"good": b"1"}, link="a link")  # type: ignore[operator]
    with raises_exactly(
        f"{archive}: contains a link, 'a link', unlike the published file; delete it and download it again"
    ):
        unpack(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_an_archive_that_unpacks_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: object) -> None:
    """The cap is on all files together, as they are unpacked: what an archive says about sizes is not believed."""
    entries = {"one": bytes(600_000), "two": bytes(600_000)}
    archive = pack(tmp_path / "archive", entries)  # type: ignore[operator]
    monkeypatch.setattr(archives, "LARGEST", 1_000_000)
    with raises_exactly(
        f"{archive}: unpacks to more than 0 GB, unlike any published data set; delete it and download it again"
    ):
        unpack(archive, tmp_path / "data" / "out")
    assert not list((tmp_path / "data").iterdir())
    monkeypatch.setattr(archives, "LARGEST", 1_200_000)
    unpack(archive, tmp_path / "data" / "out")
    assert len(list((tmp_path / "data" / "out").iterdir())) == 2


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_unpacking_joins_what_is_there(tmp_path: Path, pack: object) -> None:
    entries = {"./top/a/1": b"new", "top/b": b"new", "top/c": b"not wanted", "other/d": b"not below"}
    archive = pack(tmp_path / "archive", entries)  # type: ignore[operator]
    out = tmp_path / "out"
    (out / "a").mkdir(parents=True)
    (out / "a" / "1").write_bytes(b"old")
    (out / "a" / "2").write_bytes(b"kept")
    unpack(archive, out, root="top", only=("a/1", "b"))
    found = {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()}
    assert found == {"a/1": b"new", "a/2": b"kept", "b": b"new"}


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_a_damaged_archive(tmp_path: Path, pack: object) -> None:
    archive = pack(tmp_path / "archive", {"good": bytes(range(256)) * 40})  # type: ignore[operator]
    content = bytearray(archive.read_bytes())
    for at in range(40, 60):
        content[at] ^= 0x55
    for damaged in (bytes(content), bytes(content[:50]), b"", b"no archive at all"):
        archive.write_bytes(damaged)
        with pytest.raises(HoldfastError) as caught:
            unpack(archive, tmp_path / "data" / "out")
        whole = rf"{re.escape(str(archive))}: cannot be unpacked \(.+\); delete it and download it again"
        assert re.fullmatch(whole, str(caught.value))
        assert not (tmp_path / "data" / "out").exists()
