"""Who may look: what the engine makes is for its owner, and for a group that the umask leaves everything."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lemming.cli import run as lemming
from lemming.kernel.files import fs
from lemming.kernel.files.file_effects import FileEffect, apply_effect
from lemming.kernel.journal.ledger import ROTATE_BYTES, AgentState, write_state
from lemming.testing import SCRIPT_FILE, say, write_script

PRIVATE_FOLDERS = (
    ".lemming", "logs", "logs/ticks", "agents/planner/outbox", "agents/planner/logs", "agents/planner/memory",
    "agents/human/outbox",
)  # fmt: skip
PRIVATE_FILES = (
    "agents/planner/turns.jsonl", "logs/engine.log", "logs/ticks/00000001.jsonl",
    "agents/planner/logs/activity.log",
)  # fmt: skip
OPEN_PLACES = ("agents", "agents/planner", "agents/planner/resume.json", "config", "tick.json")


@contextlib.contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def run(mask: int, folder: Path, *words: str) -> None:
    with umask(mask), contextlib.chdir(folder):
        assert lemming(list(words)) == 0


def make_org(mask: int, folder: Path) -> Path:
    """Make an organisation as a person does: init, an agent, a message, a memory, a tick."""
    run(mask, folder, "init", "org", "--template", "empty")
    org = folder / "org"
    write_script(org, [{"reply": say("hello")}])
    models = {"default": {"provider": "scripted", "options": {"file": SCRIPT_FILE}}}
    (org / "config/models.json").write_text(json.dumps(models))
    run(mask, org, "agents", "new", "planner", "--read", "human", "--instructions", "Plan.")
    run(mask, org, "send", "hello")
    run(mask, org, "memory", "set", "planner", "plan", '"rest"')
    run(mask, org, "run-once")
    return org


def test_what_is_private_is_for_its_owner_under_the_usual_umask(tmp_path: Path) -> None:
    org = make_org(0o022, tmp_path)
    assert {place: oct(mode(org / place)) for place in PRIVATE_FOLDERS} == dict.fromkeys(PRIVATE_FOLDERS, "0o700")
    assert {place: oct(mode(org / place)) for place in PRIVATE_FILES} == dict.fromkeys(PRIVATE_FILES, "0o600")
    assert [place for place in OPEN_PLACES if not mode(org / place) & 0o044] == []


def test_a_group_that_the_umask_leaves_everything_may_look(tmp_path: Path) -> None:
    org = make_org(0o007, tmp_path)
    assert [place for place in PRIVATE_FOLDERS if mode(org / place) != 0o750] == []
    assert [place for place in PRIVATE_FILES if mode(org / place) != 0o640] == []


@pytest.mark.parametrize("place", ["agents/ada/workspace/out/a.txt", "shared/a.txt"])
def test_workspaces_and_shared_files_are_as_the_umask_says(tmp_path: Path, place: str) -> None:
    with umask(0o022):
        fs.write_atomic(tmp_path, place, b"1")
    assert mode(tmp_path / place) == 0o644
    assert {mode(above) for above in (tmp_path / place).parents if tmp_path in above.parents} == {0o755}


def test_what_stands_there_already_keeps_its_mode(tmp_path: Path) -> None:
    for place in ("logs/ticks", "agents/ada/outbox"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place).chmod(0o755)
    fs.write_atomic(tmp_path, "agents/ada/outbox/entry.json", b"1")
    fs.append(tmp_path, "logs/ticks/00000001.jsonl", b"1")
    assert mode(tmp_path / "logs/ticks") == mode(tmp_path / "agents/ada/outbox") == 0o755
    assert mode(tmp_path / "logs/ticks/00000001.jsonl") == 0o600
    assert mode(tmp_path / "agents/ada/outbox/entry.json") == 0o644, "the folder's mode decides"


@pytest.mark.parametrize("wanted", [0o600, 0o664, 0o755])
def test_a_file_that_is_replaced_keeps_its_mode(tmp_path: Path, wanted: int) -> None:
    fs.write_atomic(tmp_path, "agents/ada/memory/plan.json", b"1")
    (tmp_path / "agents/ada/memory/plan.json").chmod(wanted)
    with umask(0o077):
        fs.write_atomic(tmp_path, "agents/ada/memory/plan.json", b"2")
    assert mode(tmp_path / "agents/ada/memory/plan.json") == wanted


@pytest.mark.parametrize("wanted", [0o600, 0o640, 0o644])
def test_a_ledger_that_is_cut_back_keeps_its_mode(tmp_path: Path, wanted: int) -> None:
    write_state(tmp_path, "ada", AgentState(tick=1))
    ledger = tmp_path / "agents/ada/turns.jsonl"
    assert mode(ledger) == 0o600
    ledger.chmod(wanted)
    before = ledger.stat().st_ino
    write_state(tmp_path, "ada", AgentState(tick=2, results=({"output": "x" * ROTATE_BYTES},)))
    assert (ledger.stat().st_ino != before, mode(ledger)) == (True, wanted)


def test_a_folder_elsewhere_is_as_the_umask_says_whatever_its_names(tmp_path: Path) -> None:
    place = tmp_path / "site"
    place.mkdir()
    with umask(0o022):
        apply_effect(tmp_path / "org", FileEffect("logs/today/page.html", b"1", root=str(place)))
    assert (mode(place / "logs"), mode(place / "logs/today/page.html")) == (0o755, 0o644)


def test_an_organisation_may_be_made_in_a_folder_named_logs(tmp_path: Path) -> None:
    run(0o022, tmp_path, "init", "logs/org", "--template", "empty")
    assert (mode(tmp_path / "logs"), mode(tmp_path / "logs/org")) == (0o755, 0o755)


def doctors_word(folder: Path) -> tuple[str, str]:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        lemming(["-C", str(folder), "doctor", "--json"])
    found = map(json.loads, printed.getvalue().splitlines())
    return next((one["level"], one["fix"]) for one in found if one["about"] == "privacy")


@pytest.fixture
def reachable(tmp_path: Path) -> Iterator[Path]:
    """A folder as in a home that others may look into; pytest's own are closed."""
    closed = {above: mode(above) for above in (tmp_path, *tmp_path.parents) if not mode(above) & 0o001}
    for above in closed:
        above.chmod(closed[above] | 0o001)
    yield tmp_path
    for above, before in closed.items():
        above.chmod(before)


def test_doctor_says_what_everybody_may_read_and_its_advice_helps(reachable: Path) -> None:
    org = make_org(0o022, reachable)
    assert doctors_word(org) == ("ok", "")
    for place in ("logs", "agents/human/outbox", "agents/planner/turns.jsonl"):
        (org / place).chmod(0o755)
    level, fix = doctors_word(org)
    assert level == "warn"
    words = fix.partition(": ")[2]
    assert words == "chmod o-rwx logs agents/*/outbox agents/*/turns.jsonl"
    subprocess.run(words, shell=True, cwd=org, check=True)
    assert doctors_word(org) == ("ok", "")


def test_doctor_is_content_where_nobody_else_gets_as_far_as_the_folder(tmp_path: Path) -> None:
    org = make_org(0o022, tmp_path)
    (org / "logs").chmod(0o755)
    org.chmod(0o750)
    assert doctors_word(org) == ("ok", "")
