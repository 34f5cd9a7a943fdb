"""What docs/history.md gives to paste, pasted, and what it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PAGE = (
    (REPOSITORY / "docs/history.md")
    .read_text()
    .partition("## Evals and rehearsals\n")[2]
    .partition("### Rehearsal\n")[0]
)


def test_the_block_to_paste_comes_to_what_the_page_shows(tmp_path: Path) -> None:
    (block,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    shown = re.findall(r"(?:^    .*\n)+", PAGE.partition(block)[2], re.MULTILINE)[0]
    lemming = f'lemming() {{ "{sys.executable}" -m lemming "$@"; }}\n'
    ran = subprocess.run(
        ["bash", "-e", "-c", lemming + block],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.endswith(re.sub(r"^    ", "", shown, flags=re.MULTILINE))
    assert "no model was called" in ran.stderr
