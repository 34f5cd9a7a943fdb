"""Fixtures of workers: clones go to a folder of the test, and repositories are copied from a template."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from merge_org import make_asking_org
from terminal import Lemming, typed_at
from user_repositories import Bench, make_user_repository

from lemming.engine import run_once


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", f"{tmp_path}/state")
    monkeypatch.setenv("GIT_AUTHOR_DATE", "2026-01-01T00:00:00Z")
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2026-01-01T00:00:00Z")
    return tmp_path / "state"


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository that tests copy, since making it takes 15 processes."""
    root = tmp_path_factory.mktemp("template")
    make_user_repository(root / "user/repo")
    return root


@pytest.fixture
def bench(template: Path, tmp_path: Path) -> Bench:
    """A user's repository and an engine's repository."""
    shutil.copytree(template / "user", tmp_path / "user", symlinks=True)
    for path in (tmp_path / "user").rglob("*"):
        # Hooks and the second work tree name their folder.
        if path.is_file() and (path.name in ("gitdir", ".git") or path.parent.name == "hooks"):
            path.write_text(path.read_text().replace(str(template), str(tmp_path)))
    return Bench(tmp_path)


@pytest.fixture(scope="session")
def asked_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `org`, whose merge waits for ann, and `site`. Copy it before use."""
    folder = tmp_path_factory.mktemp("asked")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", f"{folder}/state")
        run_once(make_asking_org(folder)[0])
    shutil.rmtree(folder / "state")
    return folder


@pytest.fixture
def base(asked_folder: Path, tmp_path: Path) -> Path:
    """An organisation of its own, whose merge waits for ann."""
    shutil.copytree(asked_folder, tmp_path, dirs_exist_ok=True)
    return tmp_path / "org"


@pytest.fixture
def lemming(base: Path, capsys: pytest.CaptureFixture[str]) -> Lemming:
    """A `lemming` that works on the organisation in `base`."""
    return typed_at(base, capsys)


@pytest.fixture
def harness_folder() -> Iterator[Path]:
    """A folder for HOME and work tree of a real harness: Codex refuses a HOME in the system's temporary folder."""
    with tempfile.TemporaryDirectory(prefix="lemming-harness-", dir="/var/tmp") as folder:
        yield Path(folder).resolve()
