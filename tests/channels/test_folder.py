"""The folder channel: files become entries once, answers become files, and what is wrong is set aside."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest
from doorway import answer_to, arrived, noted, with_channel
from terminal import typed_at

from lemming.capabilities.channels.channel_status import find_channel_problems
from lemming.cli import run
from lemming.engine import load_tick, run_forever, run_once
from lemming.errors import ConfigError
from lemming.kernel.base.redaction.secrets import refresh
from lemming.kernel.files import fs
from lemming.kernel.journal.engine_events import Event, Sleeping, Woken
from lemming.kernel.messages import entry_id
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.validation.checks import CheckSubject
from lemming.libraries.outbox_files import write_person_entry
from lemming.testing import Crash, FrozenClock, crash_at, make_org, resume, say, tree, write_script

EVERYTHING = os.environ.get("LEMMING_CRASH_POINTS") == "all"
MANY = 10_000 if EVERYTHING else 1_000
STRIDE = 1 if EVERYTHING else 7
DROP = {"path": "shared/drop", "to": "desk"}


def tick(base: Path) -> Any:
    return run_once(base, clock=FrozenClock())


def drop(base: Path, name: str, content: str | bytes = "What is new?\n") -> Path:
    file = base / "shared/drop" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def files(base: Path) -> dict[str, bytes]:
    return tree(base / "shared/drop")


def test_a_dropped_file_is_a_request_to_the_agent_it_is_for(base: Path) -> None:
    with_channel(base, DROP)
    drop(base, "question.txt")
    report = tick(base)
    [entry] = arrived(base)
    assert entry.kind == "request"
    assert entry.payload["text"] == "What is new?\n"
    assert entry.payload["target"] == "desk"
    assert entry.payload["channel"] == "folder"
    assert entry.payload["file"] == "shared/drop/done/question.txt"
    assert entry.payload["from"]
    assert files(base) == {"done/question.txt": b"What is new?\n"}
    assert [turn.status for turn in report.turns if turn.agent == "desk"] == ["done"]


@pytest.mark.parametrize("path", [".", "config", "./agents/", "agents/desk/outbox", ".lemming", "link", "absolute"])
def test_files_of_the_organisation_are_never_taken_as_dropped(base: Path, path: str) -> None:
    with_channel(base, DROP)
    tick(base)
    (base / "link").symlink_to(".")
    there = tree(base / "config") | tree(base / "agents")
    with_channel(base, {**DROP, "path": str(base) if path == "absolute" else path})
    with contextlib.suppress(ConfigError):
        tick(base)
    assert (base / "tick.json").exists()
    assert there.keys() <= (tree(base / "config") | tree(base / "agents")).keys()
    assert not [*base.rglob("done"), *base.rglob("failed")]
    assert run(["-C", str(base), "channels"]) == 0


def test_an_answer_is_a_file_of_the_same_name(base: Path) -> None:
    with_channel(base, DROP)
    drop(base, "question.txt")
    drop(base, "notes.md")
    tick(base)
    notes, question = sorted(arrived(base), key=lambda entry: str(entry.payload["file"]))
    answer_to(base, question, "Nothing.")
    answer_to(base, notes, "Noted.")
    answer_to(base, question, "Or rather: rain.")
    tick(base)
    answers = {name: text for name, text in files(base).items() if name.startswith("answers/")}
    assert answers.pop("answers/question.txt.md") == b"Nothing.\n"
    assert answers.pop("answers/notes.md") == b"Noted.\n"
    assert list(answers.values()) == [b"Or rather: rain.\n"]
    assert [line["did"] for line in noted(base)] == ["received"] * 2 + ["delivered"] * 3


def test_the_same_file_dropped_again_later_is_another_request(base: Path) -> None:
    with_channel(base, DROP)
    for _ in range(2):
        drop(base, "question.txt")
        tick(base)
    assert len(arrived(base)) == 2
    assert set(files(base)) == {"done/question.txt", "done/question-2.txt"}


def test_what_can_be_no_entry_is_set_aside_with_its_reason(base: Path) -> None:
    with_channel(base, {**DROP, "max_bytes": 100})
    drop(base, "empty.txt", "")
    drop(base, "large.txt", "x" * 101)
    (base / "shared/drop/link.txt").symlink_to("/etc/hostname")
    tick(base)
    assert arrived(base) == []
    reasons = {name: text for name, text in files(base).items() if name.endswith(".why.txt")}
    assert reasons == {
        "failed/empty.txt.why.txt": b"empty.txt: the file is empty\n",
        "failed/large.txt.why.txt": b"large.txt: a file must have at most 100 bytes (max_bytes), got 101\n",
        "failed/link.txt.why.txt": b"link.txt: expected a regular file\n",
    }
    assert (base / "shared/drop/failed/large.txt").read_bytes() == b"x" * 101
    assert [line["did"] for line in noted(base)] == ["refused"] * 3


@pytest.mark.parametrize("content", [b"\xff\xfe\x00binary", b"long text " * 4000], ids=["binary", "long"])
def test_what_does_not_fit_into_an_entry_is_named_by_its_path(base: Path, content: bytes) -> None:
    with_channel(base, DROP)
    drop(base, "photo.png", content)
    tick(base)
    [entry] = arrived(base)
    told = f"A file: shared/drop/done/photo.png (image/png, {len(content):,} bytes)"
    assert entry.payload["text"] == told
    assert (base / entry.payload["file"]).read_bytes() == content


def test_a_file_that_somebody_is_writing_is_not_taken(base: Path) -> None:
    with_channel(base, DROP)
    file = drop(base, "slow.txt", "half a")
    with file.open("ab") as stream:
        tick(base)
        assert arrived(base) == []
        stream.write(b" question")
    tick(base)
    [entry] = arrived(base)
    assert entry.payload["text"] == "half a question"


def test_files_that_programs_are_known_to_write_are_left_alone(base: Path) -> None:
    with_channel(base, {**DROP, "files": ["*.txt"]})
    left = ["a.txt.part", "b.txt~", ".c.txt", "d.csv"]
    for name in [*left, "e.txt"]:
        drop(base, name)
    tick(base)
    assert [entry.payload["file"] for entry in arrived(base)] == ["shared/drop/done/e.txt"]
    assert set(left) < set(files(base))


def test_no_more_than_the_limit_are_taken_in_a_tick_and_none_is_lost(base: Path) -> None:
    with_channel(base, {**DROP, "per_tick": 7})
    for number in range(20):
        drop(base, f"{number:02}.txt", f"number {number}")
    taken = []
    for _ in range(3):
        tick(base)
        taken.append(len(arrived(base)))
    assert taken == [7, 14, 20]
    texts = [str(entry.payload["text"]) for entry in arrived(base)]
    assert sorted(texts) == sorted(f"number {number}" for number in range(20))


@pytest.mark.long
@pytest.mark.crash
def test_thousands_of_files_at_once_are_taken_little_by_little(base: Path) -> None:
    with_channel(base, {**DROP, "per_tick": 64})
    folder = base / "shared/drop"
    folder.mkdir(parents=True)
    for number in range(MANY):
        (folder / f"{number:05}.txt").touch()
        os.truncate(folder / f"{number:05}.txt", 3)
    for _ in range(2):
        tick(base)
    assert len(arrived(base)) == 128
    assert len(list((folder / "done").iterdir())) == 128
    assert sum(path.is_file() for path in folder.iterdir()) == MANY - 128


def lines_sorted(found: dict[str, bytes]) -> dict[str, Any]:
    """Return a tree in which it does not matter in which order the channel's log tells of one pass."""
    log = "agents/door/channel.jsonl"
    return {**found, log: sorted(found[log].splitlines())}


@pytest.mark.crash
def test_wherever_the_engine_dies_each_file_is_one_request_and_the_files_are_the_same(base: Path) -> None:
    def build(name: str) -> Path:
        org = with_channel(base / name, DROP)
        for number in range(3):
            drop(org, f"{number}.txt", f"number {number}")
        drop(org, "empty.txt", "")
        return org

    def go_on(org: Path) -> None:
        while load_tick(org) < 4:
            tick(org)

    def answered(name: str) -> Path:
        org = build(name)
        replies = [{"agent": "desk", "tick": 1, "reply": say("", kind="response")}]
        replies[0]["reply"]["outbox_entries"] = [
            {"kind": "response", "payload": {"text": f"to {n}", "reply_to": entry_id(1, "door", n)}, "tags": []}
            for n in range(3)
        ]
        write_script(org, [*replies, {"reply": say("hello")}])
        return org

    whole = answered("whole")
    with crash_at(10**9) as changes:
        go_on(whole)
    assert len([name for name in files(whole) if name.startswith("answers/")]) == 3
    for number in range(1, len(changes) + 1, STRIDE):
        org = answered(f"crash{number}")
        with contextlib.suppress(Crash), crash_at(number):
            go_on(org)
        go_on(org)
        assert lines_sorted(tree(org)) == lines_sorted(tree(whole)), changes[number - 1]


def test_a_file_whose_entry_is_written_is_moved_and_not_taken_again(base: Path) -> None:
    with_channel(base, DROP)
    drop(base, "question.txt")
    tick(base)
    fs.move(base, "shared/drop/done/question.txt", "shared/drop/question.txt")
    log = base / "agents/door/channel.jsonl"
    log.unlink()  # as if the engine had died before it moved the file
    tick(base)
    assert len(arrived(base)) == 1
    assert set(files(base)) == {"done/question.txt"}


def test_a_folder_that_is_out_of_reach_is_waited_for_and_said(base: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    with_channel(base, {"path": str(outside), "to": "desk"})
    clock = FrozenClock()
    run_once(base, clock=clock)
    run_once(base, clock=clock)
    assert [line["did"] for line in noted(base)] == ["down"]
    outside.mkdir()
    (outside / "a.txt").write_text("here")
    run_once(base, clock=clock)
    assert arrived(base) == []
    clock.advance(11)
    run_once(base, clock=clock)
    assert [line["did"] for line in noted(base)] == ["down", "received", "up"]
    assert (outside / "done/a.txt").read_text() == "here"


def test_secrets_and_odd_names_do_no_harm(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOOR_TOKEN", "very-secret-value-1")
    refresh()
    with_channel(base, DROP)
    drop(base, "a.txt", "the token is very-secret-value-1")
    (base / "shared/drop" / os.fsdecode(b"\xff.txt")).write_text("odd")
    tick(base)
    [entry] = arrived(base)
    assert entry.payload["text"] == "the token is [redacted DOOR_TOKEN]"
    assert len([line for line in noted(base) if line["did"] == "refused"]) == 1


def test_an_agent_that_gets_another_name_does_not_answer_again(base: Path) -> None:
    with_channel(base, DROP)
    drop(base, "question.txt")
    tick(base)
    answer_to(base, arrived(base)[0], "Nothing.")
    tick(base)
    before, lines = files(base), len(noted(base))
    for old, new in (("desk", "bureau"), ("door", "hatch")):
        assert run(["-C", str(base), "agents", "rename", old, new]) == 0
    tick(base)
    assert files(base) == before
    (base / "agents/hatch").rename(base / "agents/door")
    assert len(noted(base)) == lines


def test_what_arrives_wakes_an_engine_that_sleeps(base: Path) -> None:
    with_channel(base, DROP)
    (base / "shared/drop").mkdir(parents=True)
    heard: list[Event] = []

    def hear(event: Event) -> None:
        heard.append(event)
        if isinstance(event, Sleeping) and not list((base / "shared/drop").iterdir()):
            drop(base, "question.txt")

    run_forever(base, interval_s=3600, max_ticks=2, wake_on_change=True, notify=hear)
    assert [it.changed for it in heard if isinstance(it, Woken)][:1] == [["shared/drop"]]
    assert [entry.payload["text"] for entry in arrived(base)] == ["What is new?\n"]


def test_what_could_not_go_out_is_kept_for_ten_times_as_long_as_entries_are(base: Path) -> None:
    door = resume("door", model={"key": "door"}, permissions={"read_outboxes": ["bob"], "tools": []})
    bob, ada = resume("bob", model={"key": "human"}), resume("ada", permissions={})
    models = {"door": {"provider": "folder", "options": DROP}, "human": {"provider": "human"}}
    make_org(base, ada, bob, door, models=models, org={"retention_ticks": 1})
    fs.write_atomic(base, "shared/drop", b"no folder")
    there: dict[str, list[int]] = {"door": [], "ada": []}
    entries = {
        name: write_person_entry(
            base, "bob", tick=1, kind="message", payload={"text": "Hello?", "target": name}, tags=[], created_at=""
        )
        for name in there
    }
    for number in range(1, 14):
        tick(base)
        for name, entry in entries.items():
            there[name] += [number] if (base / entry.file).exists() else []
    assert there == {"ada": [1, 2], "door": [*range(1, 12)]}


def test_a_channel_for_an_agent_with_a_broken_resume_is_not_told_that_there_is_no_such_agent(base: Path) -> None:
    with_channel(base, DROP)
    fs.write_atomic(base, "agents/desk/resume.json", b"{")
    problems = [*find_channel_problems(CheckSubject(org=Organisation(base), config=load_config(base)))]
    assert problems == []


def test_why_does_not_lay_what_a_channel_brought_or_wrote_on_a_person(
    base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with_channel(base, DROP)
    drop(base, "question.txt")
    tick(base)
    (entry,) = arrived(base)
    answer_to(base, entry, "Nothing.")
    tick(base)
    assert "[received by a channel]  What is new?" in typed_at(base, capsys)("why", entry.id).out
    origin = "[written by a person, or by the channel door]  Nothing."
    assert origin in typed_at(base, capsys)("why", "shared/drop/answers/question.txt.md").out


@pytest.mark.parametrize(("kind", "warnings"), [("request", 1), ("message", 0)])
def test_a_channel_that_may_not_read_who_answers_is_warned_of_where_it_asks(
    base: Path, kind: str, warnings: int
) -> None:
    with_channel(base, {**DROP, "kind": kind})
    door = base / "agents/door/resume.json"
    door.write_text(door.read_text().replace('"desk"', ""))
    assert len([*find_channel_problems(CheckSubject(org=Organisation(base), config=load_config(base)))]) == warnings
