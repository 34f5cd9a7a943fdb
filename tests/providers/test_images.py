"""Images that are attached to what a turn is shown, for models that take them."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from fault_server import FaultServer

from lemming.engine import run_once
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.kernel.base.errors import Unavailable
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.journal.engine_events import Event, ModelAsked
from lemming.kernel.providers import Backend, Image, Reply, Request, register_provider
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import Crash, FrozenClock, crash_at, journal_lines, make_org, resume, say, tree

CHART = b"\x89PNG\r\n chart"
BASE64 = b64encode(CHART).decode()
READS = {"allow_read": ["./workspace", "./shared"], "allow_write": ["./workspace"]}


class Looking(Backend):
    """A model that keeps what it was asked."""

    keeps_deadline = True
    takes_images = True
    asked: list[Request] = []  # noqa: RUF012

    def complete(self, request: Request) -> Reply:
        Looking.asked.append(request)
        return Reply(json.dumps(say("I see")))


class Away(Looking):
    """A model that would take images, and cannot be reached."""

    def complete(self, request: Request) -> Reply:
        raise Unavailable("it is away")


register_provider("looking", Looking)
register_provider("away", Away)


class Naming(Looking):
    """A model that names a file in what it says."""

    def complete(self, request: Request) -> Reply:
        entry = {"kind": "message", "payload": {"text": "see", "attachments": ["anything"]}, "tags": []}
        return Reply(json.dumps(say("", outbox_entries=[entry])))


register_provider("naming", Naming)


@pytest.fixture(autouse=True)
def asked() -> Iterator[list[Request]]:
    Looking.asked.clear()
    yield Looking.asked
    Looking.asked.clear()


def shown(base: Path, *paths: str, entry: dict[str, Any] | None = None, **agent: Any) -> Path:
    """Make an organisation in which a person shows files to an agent."""
    may = {"read_outboxes": ["human"], "file_access": agent.pop("file_access", READS)}
    make_org(
        base,
        resume("ada", model={"key": "eye", "fallback": ["blind"]}, permissions=may, **agent),
        resume("human", model={"key": "human"}),
        models={
            "eye": entry or {"provider": "looking", "images": True},
            "blind": {"provider": "looking"},
            "human": {"provider": "human"},
        },
    )
    fs.write_atomic(base, "shared/chart.png", CHART)
    fs.write_atomic(base, "shared/notes.txt", b"words")
    fs.write_atomic(base, "agents/human/workspace/own.png", b"own")
    files = [{"path": path, "sha256": sha256((base / path).read_bytes()).hexdigest()} for path in paths]
    said = {"id": "a", "tick": 0, "agent": "human", "kind": "message", "tags": [], "created_at": ""}
    said["payload"] = {"text": "look", "attachments": files}
    fs.write_atomic(base, "agents/human/outbox/00000000_a.json", dump_pretty(said))
    return base


def test_an_image_that_is_attached_is_shown_to_the_model(tmp_path: Path, asked: list[Request]) -> None:
    base = shown(tmp_path / "org", "shared/chart.png", "shared/notes.txt", "agents/human/workspace/own.png")
    run_once(base, clock=FrozenClock())
    [request] = asked
    assert request.images == (Image("image/png", BASE64),)
    assert request.images_with == request.messages[-1]["content"]
    started = next(line for line in journal_lines(base, 1) if line["type"] == "turn_started")
    assert started["given"]["attachments"]["images"] == [
        {"path": "shared/chart.png", "sha256": sha256(CHART).hexdigest()}
    ]
    assert BASE64 not in (base / "logs/ticks/00000001.jsonl").read_text()


def test_an_image_in_a_folder_elsewhere_is_shown_to_whom_it_is_granted(tmp_path: Path, asked: list[Request]) -> None:
    (tmp_path / "far.png").write_bytes(CHART)
    far = {**READS, "allow_read": [str(tmp_path)]}
    run_once(shown(tmp_path / "org", f"{tmp_path}/far.png", file_access=far), clock=FrozenClock())
    assert asked[0].images == (Image("image/png", BASE64),)


def test_an_image_that_has_changed_since_is_not_shown(tmp_path: Path, asked: list[Request]) -> None:
    base = shown(tmp_path / "org", "shared/chart.png")
    (base / "shared/chart.png").write_bytes(b"another")
    run_once(base, clock=FrozenClock())
    assert asked[0].images == ()


def test_an_image_beyond_the_grants_is_not_shown(tmp_path: Path, asked: list[Request]) -> None:
    base = shown(tmp_path / "org", "shared/chart.png", file_access={"allow_read": ["./workspace"]})
    run_once(base, clock=FrozenClock())
    assert asked[0].images == ()


def test_a_model_that_takes_none_is_shown_none_and_its_record_has_no_such_key(
    tmp_path: Path, asked: list[Request]
) -> None:
    base = shown(tmp_path / "org", "shared/chart.png", entry={"provider": "looking"})
    run_once(base, clock=FrozenClock())
    assert asked[0].images == ()
    started = next(line for line in journal_lines(base, 1) if line["type"] == "turn_started")
    assert "given" not in started
    assert "images" not in started["model"]


def test_a_fallback_that_takes_none_is_shown_none(tmp_path: Path, asked: list[Request]) -> None:
    away = {"provider": "away", "images": True, "attempts": 1}
    base = shown(tmp_path / "org", "shared/chart.png", entry=away)
    (turn,) = (it for it in run_once(base, clock=FrozenClock()).turns if it.agent == "ada")
    assert turn.status == "done"
    (request,) = asked
    assert (request.images, request.images_with) == ((), "")


def test_who_is_shown_images_and_may_not_attach_any_writes_what_it_likes(tmp_path: Path) -> None:
    base = shown(tmp_path / "org", "shared/chart.png", entry={"provider": "naming", "images": True})
    run_once(base, clock=FrozenClock())
    (entry,) = read_outbox_entries(base, "ada")
    assert entry.payload["attachments"] == ["anything"]


def test_images_for_a_backend_that_has_no_way_to_show_them_are_a_mistake(tmp_path: Path) -> None:
    base = shown(
        tmp_path / "org", entry={"provider": "scripted", "images": True, "options": {"file": "config/answers.jsonl"}}
    )
    report = run_once(base, clock=FrozenClock()).turns[0]
    assert report.status == "failed"
    assert '"images" must not be true' in report.reason


def test_a_turn_that_was_interrupted_is_shown_the_same_image_again(tmp_path: Path, asked: list[Request]) -> None:
    base = shown(tmp_path / "org", "shared/chart.png")
    with pytest.raises(Crash), crash_at(6):
        run_once(base, clock=FrozenClock())
    run_once(base, clock=FrozenClock())
    assert [request.images for request in asked] == [(Image("image/png", BASE64),)]


def test_an_image_that_changes_while_a_turn_is_interrupted_is_not_shown(tmp_path: Path, asked: list[Request]) -> None:
    base = shown(tmp_path / "org", "shared/chart.png")

    def die(event: Event) -> None:
        if isinstance(event, ModelAsked):
            raise Crash

    with pytest.raises(Crash):
        run_once(base, clock=FrozenClock(), notify=die)
    asked.clear()
    fs.write_atomic(base, "shared/chart.png", b"another")
    run_once(base, clock=FrozenClock())
    assert [request.images for request in asked] == [()]


def test_the_past_agrees_without_the_image(tmp_path: Path, asked: list[Request]) -> None:
    base = shown(tmp_path / "org", "shared/chart.png")
    run_once(base, clock=FrozenClock())
    before = tree(base)
    (base / "shared/chart.png").unlink()
    assert [each.tick for each in replay_ticks(base, [1])] == [1]
    assert len(asked) == 1
    assert tree(base) == {file: raw for file, raw in before.items() if file != "shared/chart.png"}


DATA = f"data:image/png;base64,{BASE64}"
SOURCE = {"type": "base64", "media_type": "image/png", "data": BASE64}


@pytest.mark.parametrize(
    ("entry", "where", "wanted"),
    [
        ({"provider": "openai", "options": {"api": "chat"}}, "messages",
         {"type": "image_url", "image_url": {"url": DATA}}),
        ({"provider": "openai", "options": {"api": "responses"}}, "input",
         {"type": "input_image", "image_url": DATA}),
        ({"provider": "anthropic", "options": {}}, "messages", {"type": "image", "source": SOURCE}),
        ({"provider": "ollama", "options": {}}, "messages", BASE64),
    ],
    ids=["openai chat", "openai responses", "anthropic", "ollama"],
)  # fmt: skip
def test_each_api_gets_the_image_in_its_own_form(
    entry: dict[str, Any], where: str, wanted: Any, tmp_path: Path, faults: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "k" * 20)
    address = "host" if entry["provider"] == "ollama" else "base_url"
    version = "" if entry["provider"] != "openai" else "/v1"
    options = {**entry["options"], address: f"{faults.url('ok')}{version}"}
    base = shown(tmp_path / "org", "shared/chart.png", entry={
        **entry, "model": "m", "images": True, "options": options,
    })  # fmt: skip
    first = len(faults.received)
    report = run_once(base, clock=FrozenClock()).turns[0]
    assert report.status == "done", report.reason
    sent = faults.received[first].body[where][-1]
    if entry["provider"] == "ollama":
        assert sent["images"] == [wanted]
        return
    text, image = sent["content"]
    assert "look" in text["text"]
    assert image == wanted
