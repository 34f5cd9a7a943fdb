"""An organisation from elsewhere: looking at it runs, writes, imports and calls nothing that it chose."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from terminal import REPOSITORY, Lemming

from lemming.engine import run_once
from lemming.testing import make_org, resume

IMPORTED = ("pip", "typer", "json", "ctypes", "pydantic", "structlog")


def plant(folder: Path, *names: str) -> Path:
    """Lay modules that would be imported by their names into a folder; return the file that each makes."""
    fired = folder.parent / "fired"
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(f"open({str(fired)!r}, 'a').write(__name__)\n")
    return fired


@pytest.mark.crash
def test_chaos_imports_nothing_from_the_folder_it_is_typed_in(
    base: Path, lemming: Lemming, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_org(base, resume("ada"))
    run_once(base)
    fired = plant(base / "shared", "lemming", *IMPORTED)
    monkeypatch.chdir(base / "shared")
    assert lemming("chaos", "--kills", "1").status == 0
    assert not fired.exists()


@pytest.mark.parametrize("words", [["status"], ["repair", "--yes"], ["run-once"]])
def test_python_m_lemming_imports_nothing_from_the_folder_it_is_typed_in(
    base: Path, words: list[str]
) -> None:
    make_org(base, resume("ada"))
    fired = plant(base / "shared", *IMPORTED)
    done = subprocess.run(
        [sys.executable, "-m", "lemming", *words],
        cwd=base / "shared",
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, fired.exists()) == (0, False), done.stderr
