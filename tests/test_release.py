"""What is released: a wheel and a source distribution, made and tried without what lies beside them here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from patience import PATIENCE_S

from docs.manual import render_manual
from lemming.kernel.base.version import __version__
from lemming.operations.backup_archive import tarfile

REPOSITORY = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that the source distribution unpacks to."""
    place = tmp_path_factory.mktemp("source")
    made = built("sdist", REPOSITORY, place)
    with tarfile.open(made) as archive:
        archive.extractall(place, filter="data")
    return place / made.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def installed(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with what a wheel that was built from the source distribution installs."""
    place = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(built("wheel", source, place)) as archive:
        archive.extractall(place / "installed")
    return place / "installed"


def built(kind: str, source: Path, place: Path) -> Path:
    code = f"from hatchling import build; print(build.build_{kind}({str(place)!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=source, capture_output=True, text=True, check=True)
    return place / done.stdout.split()[-1]


def ran(installed: Path, place: Path, *words: str) -> str:
    """Run a module of what was installed, in another folder, and return what it printed."""
    command = [sys.executable, "-m", *words]
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run(
        command, cwd=place, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_version_is_said_once(installed: Path) -> None:
    (metadata,) = installed.glob("*.dist-info/METADATA")
    assert f"\nVersion: {__version__}\n" in metadata.read_text()
    assert __version__ not in (REPOSITORY / "pyproject.toml").read_text()


def test_what_was_installed_makes_and_runs_an_organisation(installed: Path, tmp_path: Path) -> None:
    where = ran(installed, tmp_path, "lemming.kernel.base.version") + ran(installed, tmp_path, "lemming", "--version")
    assert where.strip() == f"lemming {__version__}"
    ran(installed, tmp_path, "lemming", "init", "desk", "--template", "desk")
    ran(installed, tmp_path, "lemming", "-C", "desk", "run-once", "--quiet")
    assert len(list(tmp_path.glob("desk/agents/*/outbox/*.json"))) == 12
    assert "ORD-1" in ran(installed, tmp_path, "conformance", "--list")


def test_it_holds_what_it_says_and_nothing_of_ours(installed: Path, source: Path) -> None:
    (types,) = installed.glob("lemming/py.typed")
    assert types.is_file()
    assert {path.name for path in installed.iterdir() if not path.name.startswith("lemming_engine")} == {
        "conformance",
        "lemming",
    }
    assert not list(source.rglob("__pycache__"))
    assert {"README.md", "LICENSE", "tests", "docs", "Makefile"} <= {path.name for path in source.iterdir()}


def test_the_container_copies_all_that_a_wheel_is_made_of(source: Path, tmp_path: Path) -> None:
    recipe = (source / "Containerfile").read_text()
    for copied, place in re.findall(r"^COPY (.+) /src/(\S*)$", recipe, re.MULTILINE):
        for name in copied.split():
            if (source / name).is_dir():
                shutil.copytree(source / name, tmp_path / place)
            else:
                (tmp_path / place).mkdir(exist_ok=True)
                shutil.copy(source / name, tmp_path / place)
    assert built("wheel", tmp_path, tmp_path).exists()


def test_the_manual_page_is_installed_and_up_to_date(installed: Path) -> None:
    (page,) = installed.glob("*.data/data/share/man/man1/lemming.1")
    assert page.read_text() == render_manual((REPOSITORY / "docs/cli.md").read_text()), "run `make docs`"
