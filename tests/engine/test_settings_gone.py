"""A settings file that is gone is unreadable: what it said holds, or nothing runs, until a person acts."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from optional_parts import uses
from refused import asked_with_each_look_refused

from lemming.cli import run
from lemming.engine import run_once, ticks
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.files.json_documents import GONE
from lemming.kernel.journal.engine_events import Event, ProblemFound
from lemming.kernel.journal.journal_file import load_tick_started
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.settings_files import load_recorded_settings
from lemming.testing import FrozenClock, make_org, resume, say

ORG, MODELS, CREDITS = "config/org.json", "config/models.json", "config/credits.json"
pytestmark = uses("gates")
FUNCTION = """from lemming.tools import tool


@tool
def add(one: int, other: int) -> int:
    \"\"\"Return a sum.\"\"\"
    return one + other
"""
BLOCKED = [{"at": "call", "class": "write", "then": "block"}]


def writer_in(base: Path, **org: Any) -> Path:
    """Make an organisation whose only agent writes a file in each tick, which a gate blocks."""
    script = []
    for tick in range(1, 400):  # other words each time, or it counts as a loop
        call = {"tool": "file_write", "args": {"path": "shared/forbidden.txt", "content": f"{tick}"}}
        script.append({"tick": tick, "reply": say(f"for tick {tick}", tool_calls=[call])})
    access = {"allow_read": ["./shared"], "allow_write": ["./shared"]}
    ada = resume(
        "ada",
        permissions={"tools": ["file_write"], "file_access": access, "read_outboxes": ["*"]},
        turn={"max_steps": 1},
        credits={"max_credits": 1e9},
    )
    make_org(base, ada, script=script, org={"gates": BLOCKED, **org})
    (base / CREDITS).write_text('{"ada": {"max_credits": 1000000}}')
    return base


def problems_in(heard: list[Event]) -> list[tuple[str, str]]:
    return [(it.problem.file, it.problem.severity) for it in heard if isinstance(it, ProblemFound)]


def forbidden(base: Path) -> bool:
    return (base / "shared/forbidden.txt").exists()


@pytest.mark.sample(3)
@pytest.mark.parametrize("file", [ORG, MODELS, CREDITS])
@pytest.mark.parametrize("lost", ["removed", "emptied"])
def test_settings_that_vanish_hold_while_the_engine_runs_and_it_says_so_once(base: Path, file: str, lost: str) -> None:
    writer_in(base)
    heard: list[Event] = []
    running = ticks(base, interval_s=0, max_ticks=4, clock=FrozenClock(), notify=heard.append)
    next(running)
    said = (base / file).read_bytes()
    (base / file).unlink() if lost == "removed" else (base / file).write_bytes(b"")
    assert [len(next(running).by_status("waiting")) for _ in range(2)] == [1, 1]
    (base / file).write_bytes(said)
    assert next(running).by_status("waiting")
    assert problems_in(heard) == [(file, "error"), (file, "note")]
    assert not forbidden(base)


def test_settings_that_came_while_the_engine_ran_hold_as_well_when_they_vanish(base: Path) -> None:
    writer_in(base)
    said = (base / ORG).read_bytes()
    (base / ORG).unlink()
    heard: list[Event] = []
    running = ticks(base, interval_s=0, max_ticks=3, clock=FrozenClock(), notify=heard.append)
    (base / ORG).write_bytes(said)
    assert next(running).by_status("waiting")
    (base / ORG).unlink()
    assert [len(next(running).by_status("waiting")) for _ in range(2)] == [1, 1]
    assert problems_in(heard) == [(ORG, "error")]
    assert not forbidden(base)


def journals(base: Path, **said: bytes) -> Path:
    """Write the first lines of journals, by tick."""
    folder = base / "logs/ticks"
    folder.mkdir(parents=True)
    for tick, line in said.items():
        (folder / f"{tick.removeprefix('t'):0>8}.jsonl").write_bytes(line)
    return base


def first_line(*files: str) -> bytes:
    return json.dumps({"type": "tick_started", "settings": dict.fromkeys(files, "0")}).encode() + b"\n"


@pytest.mark.parametrize(
    ("said", "names"),
    [
        ({"t1": first_line(ORG), "t2": first_line(MODELS)}, {MODELS}),
        ({"t99999999": first_line(ORG), "t100000000": first_line(MODELS)}, {MODELS}),
        ({"t1": first_line(ORG), "t2": b"", "t3": b'{"settings"'}, {ORG}),
        ({"t1": first_line(ORG), "t2": b"damaged\n"}, set()),
        ({"t1": first_line(ORG), "t2": b"[]\n"}, set()),
        ({"t1": first_line(ORG), "t2": b'{"settings": ["x"]}\n'}, set()),
        ({"t1": b""}, set()),
    ],
    ids=["newest", "a longer number", "torn", "damaged", "no object", "no settings", "nothing"],
)
def test_the_newest_journal_that_begins_says_which_settings_there_were(
    tmp_path: Path, said: dict[str, bytes], names: set[str]
) -> None:
    assert load_recorded_settings(journals(tmp_path, **said)) == names


def test_a_disk_that_does_not_say_which_settings_there_were_has_not_said_none(base: Path) -> None:
    writer_in(base)
    run_once(base, clock=FrozenClock())
    assert asked_with_each_look_refused(base, errno.EIO, lambda: load_recorded_settings(base)) >= {ORG, CREDITS}


@pytest.mark.sample(3)
@pytest.mark.parametrize("half", [b"", b'{"gates": [', None])
def test_a_half_saved_file_does_not_end_an_engine_whose_agents_have_functions(base: Path, half: bytes | None) -> None:
    (base / "tools").mkdir(parents=True)
    (base / "tools/own.py").write_text(FUNCTION)
    writer_in(base, tool_files=["tools/*.py"])
    heard: list[Event] = []
    running = ticks(base, interval_s=0, max_ticks=3, clock=FrozenClock(), notify=heard.append)
    next(running)
    (base / ORG).unlink() if half is None else (base / ORG).write_bytes(half)
    assert [len(next(running).by_status("waiting")) for _ in range(2)] == [1, 1]
    assert problems_in(heard) == [(ORG, "error")]
    assert not forbidden(base)


def test_a_folder_of_settings_that_vanishes_is_no_default_either(base: Path) -> None:
    writer_in(base)
    running = ticks(base, interval_s=0, max_ticks=2, clock=FrozenClock())
    next(running)
    (base / "config").rename(base / "elsewhere")
    (base / "elsewhere/answers.jsonl").rename(base / "answers.jsonl")
    next(running)
    assert not forbidden(base)


@pytest.mark.parametrize("file", [ORG, MODELS, CREDITS])
def test_a_new_process_refuses_to_run_without_a_file_that_the_last_tick_ran_with(base: Path, file: str) -> None:
    writer_in(base)
    run_once(base, clock=FrozenClock())
    (base / file).unlink()
    with pytest.raises(ConfigError, match=r"write \{\} into it") as refused:
        run_once(base, clock=FrozenClock())
    assert refused.value.problems[0].code == GONE
    assert refused.value.problems[0].file == file
    assert not forbidden(base)


@pytest.mark.parametrize("file", [ORG, MODELS, CREDITS])
def test_a_person_who_writes_an_empty_object_confirms_that_nothing_holds(base: Path, file: str) -> None:
    writer_in(base)
    run_once(base, clock=FrozenClock())
    (base / file).write_text("{}")
    run_once(base, clock=FrozenClock())
    (base / file).unlink()
    run_once(base, clock=FrozenClock())
    assert forbidden(base) == (file == ORG)


def test_the_settings_of_a_tick_are_on_record_by_their_digests(base: Path) -> None:
    writer_in(base)
    (base / CREDITS).write_text("{}")
    run_once(base, clock=FrozenClock())
    plan = load_tick_started(base, 1)
    assert plan is not None
    assert sorted(plan.settings) == [MODELS, ORG]
    assert plan.settings[ORG] == Organisation(base).files.get_reading(ORG, bytes, limit_bytes=1 << 20).digest


def test_an_organisation_that_never_had_settings_runs_by_defaults(base: Path) -> None:
    make_org(base, resume("ada"), script=[{"reply": say("hello")}])
    for _ in range(2):
        assert run_once(base, clock=FrozenClock()).by_status("done")


def without_settings(base: Path, tick: int) -> None:
    """Make a journal's first record one of a version that recorded no settings."""
    journal = base / f"logs/ticks/{tick:08d}.jsonl"
    lines = journal.read_text().splitlines()
    plain = {key: value for key, value in json.loads(lines[0]).items() if key != "settings"}
    journal.write_text("\n".join([json.dumps(plain), *lines[1:], ""]))


def test_a_journal_of_a_version_that_recorded_no_settings_asks_for_none(base: Path) -> None:
    writer_in(base)
    run_once(base, clock=FrozenClock())
    without_settings(base, 1)
    (base / CREDITS).unlink()
    assert load_config(base).allocations == {}


@pytest.mark.parametrize("first_line", [b"", b'{"type":"tick_started","tick":2,"ord'])
def test_a_journal_that_a_kill_left_without_a_record_leaves_the_word_to_the_one_before(
    base: Path, first_line: bytes
) -> None:
    writer_in(base)
    run_once(base, clock=FrozenClock())
    (base / "logs/ticks/00000002.jsonl").write_bytes(first_line)
    (base / ORG).unlink()
    with pytest.raises(ConfigError, match="the file does not exist"):
        load_config(base)


def test_a_pause_that_only_quiet_ticks_have_seen_holds_in_the_next_process(base: Path) -> None:
    make_org(base, resume("ada"), script=[{"reply": say("hello")}])
    run_once(base, clock=FrozenClock())
    (base / ORG).write_text('{"paused": "by hand"}')
    for _ in range(2):
        assert not run_once(base, clock=FrozenClock()).by_status("done")
    (base / ORG).unlink()
    with pytest.raises(ConfigError, match="the file does not exist"):
        run_once(base, clock=FrozenClock())


def test_settings_are_put_on_record_once_and_quiet_ticks_stay_without_a_journal(base: Path) -> None:
    make_org(base, resume("ada"), script=[{"reply": say("hello")}])
    run_once(base, clock=FrozenClock())
    (base / ORG).write_text('{"paused": "by hand"}')
    for _ in range(4):
        run_once(base, clock=FrozenClock())
    assert sorted(file.name for file in (base / "logs/ticks").iterdir()) == ["00000001.jsonl", "00000002.jsonl"]


COMMANDS = [
    "run-once", "ask ada hi", "send --to ada --as human hello", "validate", "check", "doctor", "status",
    "export org", "serve", "chaos --kills 1", "waiting", "credits show", "approve 123", "prompt ada", "plan",
    "gates list", "pause", "models list",
]  # fmt: skip


@uses("approvals", "channels")
@pytest.mark.sample(4)
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_goes_by_settings_says_that_they_are_gone(
    base: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    writer_in(base)
    run_once(base, clock=FrozenClock())
    (base / ORG).unlink()
    assert run(["-C", str(base), *command.split()]) == (1 if command == "doctor" else 3)
    assert "the file does not exist, though the last tick used it" in "".join(capsys.readouterr())


def test_a_fork_of_an_organisation_without_its_settings_does_not_run_either(base: Path, tmp_path: Path) -> None:
    writer_in(base)
    run_once(base, clock=FrozenClock())
    (base / ORG).unlink()
    assert run(["-C", str(base), "fork", str(tmp_path / "fork"), "--at", "1"]) == 0
    with pytest.raises(ConfigError, match="the file does not exist"):
        run_once(tmp_path / "fork", clock=FrozenClock())


def test_rewind_brings_settings_back_that_are_gone(base: Path) -> None:
    writer_in(base, history="git")
    for _ in range(2):
        run_once(base, clock=FrozenClock())
    said = (base / ORG).read_bytes()
    (base / ORG).unlink()
    assert run(["-C", str(base), "rewind", "--to", "1", "--yes"]) == 0
    assert (base / ORG).read_bytes() == said
    assert run_once(base, clock=FrozenClock()).tick == 2
    assert not forbidden(base)


# --- the real git ---------------------------------------------------------------------------------


def git(base: Path, *args: str) -> None:
    ours = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    words = ["git", "-c", "user.name=ada", "-c", "user.email=ada@localhost", *args]
    subprocess.run(words, cwd=base, check=True, capture_output=True, env={**os.environ, **ours})


@pytest.fixture
def checkout(base: Path, tmp_path: Path) -> Callable[[str, Callable[[], None]], None]:
    """Return what checks a branch out with the real git, which waits while `config/org.json` is gone.

    Git unlinks a file before a filter of the repository gives the new content; the filter is two pipes.
    """
    gone, go_on = tmp_path / "gone", tmp_path / "go_on"
    for pipe in (gone, go_on):
        os.mkfifo(pipe)
    writer_in(base, timezone="Europe/Berlin")
    smudge = f"sh -c 'cat > {tmp_path}/new; echo > {gone}; read line < {go_on}; cat {tmp_path}/new'"
    git(base, "init", "-q", "-b", "main")
    (base / ".gitattributes").write_text(f"{ORG} filter=slow\n")
    git(base, "add", ".gitattributes", "config")
    git(base, "commit", "-qm", "settings")
    git(base, "checkout", "-qb", "other")
    plain = json.loads((base / ORG).read_text())
    (base / ORG).write_text(json.dumps({**plain, "timezone": "Europe/Paris"}))
    git(base, "commit", "-qam", "other settings")
    git(base, "config", "filter.slow.smudge", smudge)

    def check_out(branch: str, meanwhile: Callable[[], None]) -> None:
        words = ["git", "checkout", "-q", branch]
        with subprocess.Popen(words, cwd=base, stderr=subprocess.DEVNULL) as process:
            gone.read_text()
            try:
                meanwhile()
            finally:
                go_on.write_text("\n")
            assert process.wait() == 0

    return check_out


def test_beside_real_checkouts_no_forbidden_write_passes(
    base: Path, checkout: Callable[[str, Callable[[], None]], None]
) -> None:
    heard: list[Event] = []
    running = ticks(base, interval_s=0, max_ticks=13, clock=FrozenClock(), notify=heard.append)
    next(running)
    seen: list[bool] = []

    def meanwhile() -> None:
        seen.append((base / ORG).exists())
        next(running)

    for branch in ("main", "other") * 3:
        checkout(branch, meanwhile)
        next(running)
    assert seen == [False] * 6
    assert problems_in(heard) == [(ORG, "error"), (ORG, "note")] * 6
    assert not forbidden(base)


@pytest.mark.long
def test_beside_many_checkouts_of_the_real_git_no_forbidden_write_passes(
    base: Path, checkout: Callable[[str, Callable[[], None]], None]
) -> None:
    git(base, "config", "--remove-section", "filter.slow")  # as quick as git is
    running = ticks(base, interval_s=0, max_ticks=398, clock=FrozenClock())
    next(running)

    def check_out_again_and_again() -> None:
        for branch in ("main", "other") * 100:
            git(base, "checkout", "-q", branch)

    worker = threading.Thread(target=check_out_again_and_again)
    worker.start()
    while worker.is_alive() and next(running, None):
        pass
    worker.join()
    assert not forbidden(base)


def test_a_new_process_that_starts_in_a_checkout_refuses_and_runs_after_it(
    base: Path, checkout: Callable[[str, Callable[[], None]], None]
) -> None:
    run_once(base, clock=FrozenClock())

    def meanwhile() -> None:
        with pytest.raises(ConfigError, match="the file does not exist"):
            run_once(base, clock=FrozenClock())

    checkout("main", meanwhile)
    assert run_once(base, clock=FrozenClock()).by_status("waiting")
    assert not forbidden(base)
