"""What to type where a package is first needed and not there, in each kind of environment."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lemming.libraries.optional_packages import install_command


@pytest.mark.parametrize(
    ("left_there", "program"),
    [
        ("pyvenv.cfg", "pip install"),
        ("pipx_metadata.json", "pipx install --force"),
        ("uv-receipt.toml", "uv tool install --force"),
    ],
)
def test_the_line_is_that_of_the_program_that_made_the_environment(
    left_there: str, program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / left_there).touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert install_command("serve") == f"{program} 'lemming-engine[serve]'"
