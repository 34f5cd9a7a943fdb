"""Weights from the hub: resumed, cut, wrong; a file that somebody has already; nothing is used unchecked."""

from __future__ import annotations

import dataclasses
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import HubServer

from lemming.capabilities.embedded_models import model_weights
from lemming.capabilities.embedded_models.llama_provider import LocalProvider
from lemming.capabilities.embedded_models.model_weights import copy_known_weights, fetch_weights, verify_weights
from lemming.kernel.base.errors import ConfigError, Unavailable, UnknownModel, UsageError
from lemming.kernel.files.folder_lock import FolderLock
from lemming.kernel.org.model_entries import LOCAL_MODEL
from lemming.kernel.providers import Request
from lemming.libraries.model_catalogue import CATALOGUE, ModelWeights, find_weights

CONTENT = b"GGUF" + bytes(range(256)) * 4000
WANTED = ModelWeights(
    repository="Qwen/Tiny-GGUF",
    file="tiny.gguf",
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    size_bytes=len(CONTENT),
    licence="MIT",
)
PATH = "/Qwen/Tiny-GGUF/resolve/main/tiny.gguf"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A hub, to which HF_ENDPOINT points."""
    server = HubServer(CONTENT, PATH)
    server.start()
    monkeypatch.setenv("HF_ENDPOINT", f"{server.url}/")
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def _small_and_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the hub's library write a thousand bytes at once, and not wait before it tries again."""
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1000)
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda _: None)


def files_in(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if entry.name != ".lock")


def test_a_file_is_fetched_where_the_hub_sends_us_and_leaves_nothing_else(hub: HubServer, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    assert fetch_weights(WANTED, tmp_path, progress=lambda *what: seen.append(what)).read_bytes() == CONTENT
    assert files_in(tmp_path) == ["tiny.gguf"]
    assert [path for path, _ in hub.asked] == [PATH, "/cdn/bytes?signature=x"]
    assert ("downloading", len(CONTENT), len(CONTENT)) in seen


def test_a_connection_that_is_cut_is_taken_up_where_it_stopped(hub: HubServer, tmp_path: Path) -> None:
    hub.cuts = [300_000, 1, 200_000]
    assert fetch_weights(WANTED, tmp_path).read_bytes() == CONTENT
    ranges = [asked for path, asked in hub.asked if path != PATH]
    assert ranges == ["", "bytes=300000-", "bytes=300000-", "bytes=500000-"]


def test_what_was_fetched_stays_for_the_next_time(hub: HubServer, tmp_path: Path) -> None:
    hub.cuts = [400_000, 0, 0, 0, 0, 0, 0]
    with pytest.raises(Unavailable, match="the connection was cut") as caught:
        fetch_weights(WANTED, tmp_path)
    assert "continue the download" in caught.value.hint
    assert files_in(tmp_path) == [".tiny.gguf.part"]
    hub.asked.clear()
    assert fetch_weights(WANTED, tmp_path).read_bytes() == CONTENT
    assert hub.asked[0] == (PATH, "bytes=400000-")


def test_a_server_without_ranges_sends_it_again_from_the_beginning(hub: HubServer, tmp_path: Path) -> None:
    hub.cuts, hub.ignores_range = [300_000], True
    assert fetch_weights(WANTED, tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("left", [b"x" * 10, b"x" * (len(CONTENT) + 1), b"x" * len(CONTENT)])
def test_a_beginning_that_is_another_files_costs_one_more_attempt(left: bytes, hub: HubServer, tmp_path: Path) -> None:
    (tmp_path / ".tiny.gguf.part").write_bytes(left)
    if len(left) <= len(CONTENT):
        with pytest.raises(Unavailable, match="must have the expected SHA-256"):
            fetch_weights(WANTED, tmp_path)
        assert files_in(tmp_path) == []
    assert fetch_weights(WANTED, tmp_path).read_bytes() == CONTENT


def test_wrong_bytes_are_thrown_away(hub: HubServer, tmp_path: Path) -> None:
    hub.content = CONTENT[:-1] + b"x"
    with pytest.raises(Unavailable, match="must have the expected SHA-256"):
        fetch_weights(WANTED, tmp_path)
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("content", [CONTENT[:-1], CONTENT + b"x", b"<html>"])
def test_a_file_of_another_size_is_not_even_fetched(content: bytes, hub: HubServer, tmp_path: Path) -> None:
    hub.content = content
    with pytest.raises(Unavailable, match="the file must have"):
        fetch_weights(WANTED, tmp_path)
    assert files_in(tmp_path) == []


@pytest.mark.parametrize(
    ("status", "about"), [(404, "the file does not exist"), (401, "the file does not exist"), (503, "HTTP 503")]
)
def test_a_refusal_names_the_address(status: int, about: str, hub: HubServer, tmp_path: Path) -> None:
    hub.status = status
    with pytest.raises(Unavailable, match=about) as caught:
        fetch_weights(WANTED, tmp_path)
    assert PATH in caught.value.where


def test_a_hub_that_cannot_be_reached_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://me:hunter2@127.0.0.1:9")
    with pytest.raises(Unavailable, match="cannot be reached") as caught:
        fetch_weights(WANTED, tmp_path)
    assert "127.0.0.1:9" in caught.value.where
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in capfd.readouterr().err


def test_a_missing_library_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub.file_download", None)
    with pytest.raises(UsageError, match="needs the package huggingface_hub") as caught:
        fetch_weights(WANTED, tmp_path)
    assert "lemming-engine[local]" in caught.value.hint


@pytest.mark.parametrize("endpoint", ["huggingface.co", "file:///etc", "ftp://x", "https://"])
def test_an_endpoint_that_is_no_address_is_refused(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    with pytest.raises(ConfigError, match="expected the address of a hub"):
        fetch_weights(WANTED, tmp_path)


def test_two_at_once_do_not_mix_their_bytes(hub: HubServer, tmp_path: Path) -> None:
    lock = FolderLock(tmp_path, ".lock")
    with pytest.raises(Unavailable, match="another process is downloading"):
        fetch_weights(WANTED, tmp_path)
    lock.release()
    assert fetch_weights(WANTED, tmp_path).read_bytes() == CONTENT


# --- files that are there --------------------------------------------------------------------------


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A catalogue with the tiny model in it, and the folder of its weights."""
    folder = tmp_path / "models"
    monkeypatch.setenv("LEMMING_MODELS_DIR", str(folder))
    monkeypatch.setitem(CATALOGUE, "tiny", WANTED)
    return folder


def test_a_file_that_somebody_has_is_known_by_its_bytes(known: Path, tmp_path: Path) -> None:
    mine = tmp_path / "some other name.bin"
    mine.write_bytes(CONTENT)
    assert copy_known_weights(mine, known) == ("tiny", known / "tiny.gguf")
    assert find_weights("tiny").read_bytes() == CONTENT
    assert copy_known_weights(known / "tiny.gguf", known) == ("tiny", known / "tiny.gguf")
    assert files_in(known) == ["tiny.gguf"]


def test_any_other_file_is_refused_with_its_hash(known: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.gguf"
    mine.write_bytes(b"mine")
    with pytest.raises(UnknownModel, match=hashlib.sha256(b"mine").hexdigest()) as caught:
        copy_known_weights(mine, known)
    assert "options" in caught.value.hint
    with pytest.raises(UnknownModel, match="the file does not exist"):
        copy_known_weights(tmp_path / "gone", known)


def test_a_file_that_was_put_there_is_checked_before_it_is_used_and_once(known: Path) -> None:
    known.mkdir()
    (known / "tiny.gguf").write_bytes(CONTENT)
    seen: list[str] = []
    assert verify_weights("tiny", progress=lambda what, *_: seen.append(what)) == known / "tiny.gguf"
    assert "checking" in seen
    seen.clear()
    verify_weights("tiny", progress=lambda what, *_: seen.append(what))
    assert seen == []
    (known / "tiny.gguf").write_bytes(CONTENT[:-1] + b"x")
    with pytest.raises(UnknownModel, match="the file is not tiny"):
        verify_weights("tiny")
    with pytest.raises(UnknownModel, match="the file is not tiny"):
        LocalProvider().complete(Request("tiny", [{"role": "user", "content": "hi"}]))


def test_the_default_is_what_it_was_and_each_model_of_the_catalogue_can_be_fetched() -> None:
    assert LOCAL_MODEL == "smollm2-135m-instruct"
    assert all(bool(one.package) != bool(one.repository) for one in CATALOGUE.values())
    assert all(len(one.sha256) == 64 and one.licence for one in CATALOGUE.values())
    sizes = dataclasses.replace(WANTED, size_bytes=1)
    assert model_weights.get_weights(LOCAL_MODEL).size_bytes > sizes.size_bytes
