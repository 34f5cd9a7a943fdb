"""Two organisations that are each other's channels: whenever one of them dies, nothing is lost or doubled."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest
from callers import SECRET
from channel_polls import poll_once
from sampling import EVERYTHING

from lemming.capabilities.channels.http_api import serve_http
from lemming.engine import run_once
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.outbox_files import read_outbox_entries, write_person_entry
from lemming.testing import SCRIPT_FILE, Crash, FrozenClock, make_org, resume, say

STRIDE = 1 if EVERYTHING else 21
OTHER = {"north": "south", "south": "north"}
SAID = {"north": ["one", "three"], "south": ["two"]}
NEXT = {"north": {"two": "three", "begin": "one"}, "south": {"three": "", "one": "two"}}
ROUNDS = 4


class Gone(Exception):
    """The process that was sent something died: what it was about to change is not changed."""


class Death:
    """One of the processes dies at the change of the disk with this number: who ticks, or who listens."""

    def __init__(self, number: int) -> None:
        self.number, self.changes, self.listener = number, 0, False

    def observe(self, _operation: str, _path: str) -> None:
        is_listener = threading.current_thread() is not threading.main_thread()
        self.changes += 1
        if self.changes == self.number:
            self.listener = is_listener
        if self.changes >= self.number and is_listener == self.listener:
            raise Gone if is_listener else Crash


def make(folder: Path) -> None:
    """Make both, and have a person tell north to begin: the desks then say `one`, `two`, `three` in turn."""
    for name, other in OTHER.items():
        desk = resume(
            "desk", schedule={"wake": "addressed"}, permissions={"read_outboxes": [other, "human"], "tools": []}
        )
        door = resume(other, model={"key": "door"}, permissions={"read_outboxes": ["desk"], "tools": []})
        script = []
        for heard, answer in NEXT[name].items():
            reply = say(answer)
            reply["outbox_entries"][0]["payload"]["target"] = other
            empty = {"notes": "the request is closed"}
            script.append({"contains": f'"text": "{heard}"', "reply": reply if answer else empty})
        make_org(
            folder / name,
            desk,
            door,
            resume("human", model={"key": "human"}),
            script=script,
            org={"executor": "serial"},
        )
    begin = {"text": "begin", "target": "desk"}
    write_person_entry(folder / "north", "human", tick=1, kind="message", payload=begin, tags=[], created_at="")


def connect(base: Path, port: int) -> None:
    """Say where the other one listens now."""
    options = {
        "to": "desk",
        "kind": "message",
        "secret_env": "DOOR",
        "deliver_secret_env": "DOOR",
        "deliver_to": f"http://127.0.0.1:{port}/hooks/{base.name}",
    }
    models = {
        "scripted": {"provider": "scripted", "options": {"file": SCRIPT_FILE}},
        "door": {"provider": "http", "options": options},
        "human": {"provider": "human"},
    }
    fs.write_atomic(base, "config/models.json", dump_pretty(models))


def arrived(folder: Path) -> dict[str, list[str]]:
    """Return what has arrived from each of them."""
    return {
        name: [str(entry.payload["text"]) for entry in read_outbox_entries(folder / other, name)]
        for name, other in OTHER.items()
    }


def run(folder: Path, clock: FrozenClock, death: Death) -> int:
    """Start both, and run them until somebody who ticks dies, or the request is closed; return the changes they made."""
    stop, told = threading.Event(), list[object]()
    with contextlib.ExitStack() as stack:
        for name, other in OTHER.items():
            found = serve_http(folder / other, "127.0.0.1", 0, clock=clock, stop=stop, report=told.append)
            connect(folder / name, stack.enter_context(found))
        stack.enter_context(contextlib.suppress(Crash))
        stack.enter_context(fs.observe_changes(death.observe))
        for _ in range(ROUNDS):
            for name in OTHER:
                clock.advance(600)
                run_once(folder / name, clock=clock)
                poll_once(Organisation(folder / name), clock.now, told.append)
    return death.changes


@pytest.mark.long
@pytest.mark.crash
def test_two_that_are_each_others_channels_lose_and_double_nothing_whenever_one_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOOR", SECRET)
    whole = tmp_path / "whole"
    make(whole)
    count = run(whole, FrozenClock(), Death(10**9))
    listeners = set()
    assert arrived(whole) == SAID
    for number in range(1, count + 1, STRIDE):
        folder, clock = tmp_path / str(number), FrozenClock()
        make(folder)
        death = Death(number)
        run(folder, clock, death)
        listeners.add(death.listener)
        run(folder, clock, Death(10**9))
        assert arrived(folder) == SAID, number
        for name, texts in SAID.items():
            written = [entry.payload["text"] for entry in read_outbox_entries(folder / name, "desk")]
            assert written == texts, number
    assert listeners == {True, False}
