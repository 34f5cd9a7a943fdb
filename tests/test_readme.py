"""What README and tutorial show, pasted as it stands, block after block, into a folder that was empty.

The model is a scripted one, but where it says otherwise. The demonstration is a real kill, and the very hash.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_S

from benchmarks import pictures
from lemming.testing import say

REPOSITORY = Path(__file__).parent.parent
README = (REPOSITORY / "README.md").read_text()
DURABILITY = (REPOSITORY / "docs/durability.md").read_text()
SKILL = (REPOSITORY / "lemming/agent_skill/lemming-organisations/SKILL.md").read_text()
TUTORIAL = (REPOSITORY / "docs/tutorial.md").read_text()
ANSWERS = [
    {"agent": "agency", "reply": say("A choir visited three villages.", kind="report")},
    {"agent": "reader", "reply": say("Why did it?", kind="request")},
    {"reply": say("Three villages hear a choir.")},
]


def blocks_of(page: str) -> list[str]:
    """Return what a page gives to paste, in order."""
    return re.findall(r"```sh\n(.*?)```", page, re.DOTALL)


def program(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone in which `make run` finds its environment made; `pip` and `venv` have nothing left to do."""
    shutil.copy(REPOSITORY / "Makefile", tmp_path)
    (tmp_path / "pyproject.toml").touch()
    bin_folder = tmp_path / ".venv/bin"
    program(bin_folder / "lemming", f'exec "{sys.executable}" -m lemming "$@"')
    program(bin_folder / "pip", "exit 0")
    (bin_folder / "activate").write_text(f'PATH="{bin_folder}:$PATH"\n')
    for stamp in ("pip", "run"):
        (tmp_path / ".venv" / stamp).touch()
    return tmp_path


@pytest.fixture
def scripted(clone: Path) -> Path:
    """The same, and whatever organisation is made has a scripted model."""
    script = clone / "answers.jsonl"
    script.write_text("\n".join(map(json.dumps, ANSWERS)))
    entry = json.dumps({"provider": "scripted", "options": {"file": str(script)}})
    (clone / "scripted.py").write_text(
        "import json, pathlib, sys\n"
        "folder = next(word for word in sys.argv[sys.argv.index('init') + 1:] if word[0] != '-')\n"
        "file = pathlib.Path(folder, 'config/models.json')\n"
        f"file.write_text(json.dumps({{**json.loads(file.read_text()), 'default': json.loads('{entry}')}}))\n"
    )
    program(
        clone / ".venv/bin/lemming",
        f'case "$1" in models) exit 0;; init) ;; *) exec "{sys.executable}" -m lemming "$@";; esac\n'
        f'"{sys.executable}" -m lemming "$@" || exit $?\n'
        f'case "$*" in *recorded*|*desk*|*workers*) ;; *) "{sys.executable}" "{clone}/scripted.py" "$@";; esac',
    )
    return clone


def paste(text: str, folder: Path, *, strictly: bool = True) -> subprocess.CompletedProcess[str]:
    """Give text to a shell, as one paste; `strictly`: the first command that fails ends it."""
    names = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "LEMMING_ROOT", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if name not in names}
    flags = ["-e"] if strictly else []
    return subprocess.run(
        ["bash", *flags, "-o", "pipefail", "-c", text],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(REPOSITORY), "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


def without_waiting(text: str) -> str:
    """Return a block whose pauses between ticks are cut; what is killed is killed all the same."""
    return text.replace("--interval 5 ", "--interval 0.1 ").replace("sleep 7", "sleep 1")


@pytest.mark.crash
def test_every_block_of_the_readme_works_pasted_as_one(scripted: Path) -> None:
    text = "\n".join(blocks_of(README)).replace("python3 -m venv .venv && ", "")
    ran = paste(text.replace("make crash", ""), scripted)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "tick 2 continues: 2 of 3 answers kept, not paid twice" in ran.stderr
    (root,) = re.findall(r"^    ([0-9a-f]{64})$", README, re.MULTILINE)
    assert root in ran.stdout
    assert "next, in this terminal:" in ran.stdout
    (lines,) = re.findall(r"```text\n(slug.*?)```", README, re.DOTALL)
    for line in lines.splitlines()[1:]:
        assert line in ran.stdout
    (python,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (scripted / "example.py").write_text(python)
    assert "'editor', 'done'" in paste(f"{sys.executable} example.py", scripted).stdout


@pytest.mark.long  # as the first block of the README, with more words
def test_the_demonstration_of_what_survives_comes_to_the_very_bytes(scripted: Path) -> None:
    (block,) = blocks_of(DURABILITY)
    ran = paste(block, scripted)
    assert ran.returncode == 0, ran.stderr[-2000:]
    (root,) = re.findall(r"^    ([0-9a-f]{64})$", DURABILITY, re.MULTILINE)
    assert root in ran.stdout
    (tree,) = re.findall(r"^    (entry .*?)\n\n", DURABILITY, re.MULTILINE | re.DOTALL)
    assert re.sub(r"^    ", "", tree, flags=re.MULTILINE) in ran.stdout


@pytest.mark.long  # commands that are each tried elsewhere
def test_what_the_skill_for_coding_agents_types_works_and_is_in_order(scripted: Path) -> None:
    (block,) = blocks_of(SKILL)
    block = block.replace("lemming validate", "lemming validate --json")
    ran = paste(f". .venv/bin/activate\n{block}", scripted)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert '"type":"problem"' not in ran.stdout
    assert "Two sentences about the new pier" in ran.stdout


@pytest.mark.long  # the first block of the README once more
def test_the_recorded_terminal_shows_what_the_first_block_prints() -> None:
    picture = pictures.strip_styles(pictures.extract_text((REPOSITORY / "docs/pictures/desk.svg").read_text()))
    now = pictures.strip_styles(pictures.record_session(pictures.extract_commands(REPOSITORY / "README.md")))
    for shown in (picture, now):
        assert "tick 2 continues: 2 of 3 answers kept, not paid twice" in "\n".join(shown)
    assert _but_the_killed_tick(picture) == _but_the_killed_tick(now), (
        "run: python -m benchmarks.pictures docs/pictures"
    )


def _but_the_killed_tick(lines: list[str]) -> list[str]:
    """Return the other lines, sorted: those who work at once end in any order."""
    killed = next(number for number, line in enumerate(lines) if line.startswith("$ lemming check chaos"))
    verify = lines.index("$ lemming verify")
    return sorted(lines[:killed] + lines[verify:])


@pytest.mark.long  # thirty commands, each of which is tried elsewhere
def test_every_block_of_the_tutorial_works_pasted_as_one(scripted: Path) -> None:
    text = "\n".join(blocks_of(TUTORIAL)).replace("python3 -m venv .venv && ", "")
    ran = paste(without_waiting(text), scripted)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert 'did you mean "instructions"?' in ran.stderr
    assert "all files match the journals" in ran.stderr


@pytest.mark.long
@pytest.mark.model
def test_the_first_tick_shown_is_what_the_embedded_model_says(clone: Path) -> None:
    (shown,) = re.findall(r"```text\n(tick 1.*?)tick 1 in", README, re.DOTALL)
    ran = paste("make run TICKS=1", clone)
    assert ran.returncode == 0, ran.stderr
    assert _said(shown) == _said(ran.stderr.partition("tick 1 in")[0])
    assert _said(shown) == _said(TUTORIAL[TUTORIAL.index("tick 1\n") : TUTORIAL.index("tick 1 in")])


def _said(text: str) -> list[str]:
    """Return the lines of the agents without what each took; those who run at once end in any order."""
    return sorted(line.partition("  1 credit")[0] for line in text.splitlines() if "  1 credit" in line)


def test_running_leaves_nothing_for_git(tmp_path: Path) -> None:
    ignored = (REPOSITORY / ".gitignore").read_text()
    (tmp_path / ".gitignore").write_text(ignored)
    for file in ("news/tick.json", "demo/agents/editor/outbox/1.json", "desk/tick.json", "newspaper/x", ".venv/x"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    ran = paste("git init -q . && git status --porcelain -uall", tmp_path)
    assert ran.stdout == "?? .gitignore\n"


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md", "docs/durability.md", "docs/operations.md"])
def test_git_ignores_the_organisations_that_the_pages_make_in_a_clone(page: str) -> None:
    names = re.findall(r"lemming init (?:\.\./)?([a-z]+)", "\n".join(blocks_of((REPOSITORY / page).read_text())))
    assert names
    assert {f"/{name}/" for name in names} <= {*(REPOSITORY / ".gitignore").read_text().split()}


def test_the_readme_counts_the_lines_of_the_changelog_team() -> None:
    document = re.search(r"```yaml\n(.*?)```", (REPOSITORY / "docs/AGENT_GUIDE.md").read_text(), re.DOTALL)
    assert document
    assert f"takes {len(document[1].splitlines())} lines and `lemming apply`" in README


def test_the_recording_is_small() -> None:
    recording = REPOSITORY / "lemming/templates/recorded/config/recording"
    assert 0 < sum(file.stat().st_size for file in recording.rglob("*") if file.is_file()) < 300_000
