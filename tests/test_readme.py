"""The README's demonstration, run as it is printed: a real kill, and the very hash at the end."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text()


@pytest.mark.crash
def test_the_demonstration_ends_with_the_hash_and_the_tree_that_the_readme_prints(tmp_path: Path) -> None:
    (block,) = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    program = tmp_path / "bin/lemming"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m lemming "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    package = str(Path(__file__).parent.parent)
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": package}
    ran = subprocess.run(
        ["bash", "-c", block], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    (root,) = re.findall(r"^    ([0-9a-f]{64})$", README, re.MULTILINE)
    assert root in ran.stdout
    (tree,) = re.findall(r"^    (entry .*?)\n\n", README, re.MULTILINE | re.DOTALL)
    assert re.sub(r"^    ", "", tree, flags=re.MULTILINE) in ran.stdout


def test_the_recording_is_small() -> None:
    recording = Path(__file__).parent.parent / "lemming/templates/recorded/recording"
    assert 0 < sum(file.stat().st_size for file in recording.rglob("*") if file.is_file()) < 300_000
