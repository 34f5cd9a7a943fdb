"""An organisation in which everybody tries to write secrets down: no file holds one afterwards, in any form.

The model says what it is told, tools print the environment, errors and servers quote keys. Then the whole
tree is looked through, inside archives, sealed journals and git's objects too.
"""

from __future__ import annotations

import json
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from disguised import ALL, FORMS, LOOKS, TEXT, VALUES, held_by, in_base64
from patience import PATIENCE_S

from lemming.engine import run_once
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.journal_tools.verify.file_verification import verify_org
from lemming.kernel.base.errors import RequestRejected
from lemming.kernel.base.redaction.secrets import refresh
from lemming.kernel.logging_config import EngineLog
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.providers import LLMProvider, Message, Reply, Request, register_provider
from lemming.libraries.journal_sealing import seal_old_journals
from lemming.libraries.memory_files import save_memory
from lemming.libraries.outbox_files import write_person_entry
from lemming.operations.backup_writer import create_backup
from lemming.testing import Crash as Killed
from lemming.testing import FrozenClock, crash_at, journal_lines, make_org, resume


class Obeying(LLMProvider):
    """Says what it is told, whatever it is."""

    replies: ClassVar[list[Reply | Exception]] = []

    def call(self, model_name: str, messages: list[Message], temperature: float | None, **_: Any) -> str:
        """Not used."""
        raise NotImplementedError

    def complete(self, request: Request) -> Reply:
        """Give the next reply, or fail as it says."""
        reply = self.replies.pop(0) if self.replies else said()
        if isinstance(reply, Exception):
            raise reply
        return reply


class Acting(Obeying):
    """Does so with calls of its own kind."""

    takes_tools = prefers_tools = True


TOOLS = '''
import os
from lemming.tools import ToolContext, tool

@tool
def environment(ctx: ToolContext, how: str = "returned") -> str:
    """Tell what is in the environment."""
    told = "\\n".join(f"{name}={value}" for name, value in os.environ.items())
    told += open(os.environ["ALL_OF_IT"]).read()
    if how == "raised":
        raise RuntimeError(told)
    if how == "logged":
        ctx.log.warning("look", told=told, **{"secret": told})
    if how == "kept":
        ctx.state["all"] = told
        ctx.memory["environment"] = {"it is": told}
        ctx.emit("message", {"text": told, "target": "bob"}, tags=[os.environ["FOO_AUTHENTICATION_TOKEN"]])
    if how == "written":
        (ctx.workspace / "mine").mkdir(exist_ok=True)
        (ctx.workspace / "mine/all.txt").write_text(told)
        secret = os.environ["FOO_AUTHENTICATION_TOKEN"].encode()
        (ctx.workspace / "mine/all.bin").write_bytes(b"\\xff\\x00" + secret)
    return told * 3 if how == "long" else told if how == "returned" else "done"

@tool
def sent_out(text: str) -> str:
    """Pretend to tell somebody."""
    raise AssertionError("it was called")
'''


def said(*calls: dict[str, Any], **more: Any) -> Reply:
    """Return a reply as text."""
    contract = {"outbox_entries": [], "tool_calls": list(calls), "memory_updates": [], "notes": "", **more}
    return Reply(json.dumps(contract))


def call(tool: str, /, **args: Any) -> dict[str, Any]:
    """Return a call of a tool."""
    return {"tool": tool, "args": args}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name, value in VALUES.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "all of it").write_text(TEXT)
    monkeypatch.setenv("ALL_OF_IT", str(tmp_path / "all of it"))
    refresh()
    register_provider("obeying", Obeying)
    register_provider("acting", Acting)
    Obeying.replies.clear()
    yield
    monkeypatch.undo()
    refresh()


@pytest.fixture
def org(tmp_path: Path) -> Path:
    """Return an organisation of two: one that acts, and one that reads all of it."""
    base = tmp_path / "org"
    pytest.importorskip("lemming.capabilities.attachments.attachments_capability")  # "*" names its tool, too
    may = {"read_outboxes": ["*"], "tools": ["*"]}
    ada = resume("ada", model={"key": "obeying"}, permissions=may, turn={"max_steps": 4})
    make_org(
        base,
        ada,
        resume("bob"),
        models={"obeying": {"provider": "obeying", "attempts": 2}, "acting": {"provider": "acting"}},
    )
    return base


@pytest.fixture
def with_functions(org: Path) -> Path:
    """Return the same organisation with functions of its own."""
    (org / "config/org.json").write_text(json.dumps({"tool_files": ["tools/*.py"]}))
    (org / "tools").mkdir()
    (org / "tools/mine.py").write_text("from __future__ import annotations\n" + textwrap.dedent(TOOLS))
    return org


@pytest.fixture
def with_history(with_functions: Path) -> Path:
    """Return the same organisation with a history of its ticks."""
    settings = json.loads((with_functions / "config/org.json").read_text())
    (with_functions / "config/org.json").write_text(json.dumps({**settings, "history": "git"}))
    return with_functions


def run(base: Path, *replies: Reply | Exception) -> list[dict[str, Any]]:
    """Run a tick with these replies of ada's model; return what the journal says of her calls."""
    Obeying.replies[:] = [*replies]
    report = run_once(base, clock=FrozenClock())
    return [line for line in journal_lines(base, report.tick) if line["type"] == "tool_finished"]


WORDS = {
    "entries": said(
        outbox_entries=[{"kind": "message", "payload": {"text": TEXT, TEXT[:500]: [TEXT]}, "tags": [ALL[0], ALL[-1]]}]
    ),
    "memories": said(memory_updates=[{"key": "all", "value": {"it": TEXT, "list": ALL, ALL[0]: 1}}]),
    "notes": said(notes=TEXT),
    "no contract": Reply(TEXT),
    "calls": said(call(ALL[0], **{ALL[0]: TEXT}), call("file_write", path=f"{ALL[0]}.txt", content="x")),
    "a model's name": Reply(said().text, model=ALL[0]),
}
FILES = {
    "written": [call("file_write", path="a.txt", content=TEXT)],
    "appended": [call("file_append", path="b.txt", content=written) for written in ALL[:40]],
    "edited": [
        call("file_write", path="c.txt", content="p4t-hush-HERE"),
        call("file_edit", path="c.txt", old="-HERE", new="/hush+42"),
        call("file_write", path="d.txt", content=f"{LOOKS['openai'][:30]}HERE{LOOKS['openai'][30:]}"),
        call("file_edit", path="d.txt", old="HERE", new=""),
        call("file_write", path="e.txt", content=f"{in_base64('a' * 9 + VALUES['BAR_PASSWORD'])[:20]} there"),
        call("file_edit", path="e.txt", old=" there", new=in_base64("a" * 9 + VALUES["BAR_PASSWORD"])[20:]),
        call("file_move", path="e.txt", to="moved/e.txt"),
    ],
    "stored": [call("store_write", key="all", value={"it": TEXT})],
    "created": [call("create_agent", name="eve", title=ALL[0], instructions=TEXT)],
    "reminded": [call("remind_me", text=TEXT, at="2027-01-01T00:00:00Z")],
    "unknown": [call("no_such_tool", text=TEXT), call("file_read", path=ALL[0]), call("file_list", path=ALL[-1])],
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("reply", WORDS.values(), ids=WORDS)
def test_what_a_model_says_leaves_no_secret(org: Path, reply: Reply) -> None:
    run(org, reply)
    run(org)
    assert held_by(org) == {}
    _is_sound(org)


@pytest.mark.sample(3)
@pytest.mark.parametrize("calls", FILES.values(), ids=FILES)
def test_what_tools_write_leaves_no_secret(org: Path, calls: list[dict[str, Any]]) -> None:
    finished = run(org, said(*calls))
    assert finished
    run(org)
    assert held_by(org) == {}
    _is_sound(org)


@pytest.mark.sample(5)
@pytest.mark.parametrize("how", ["returned", "raised", "logged", "kept", "written", "long"])
def test_a_function_that_tells_the_environment_leaves_no_secret(with_functions: Path, how: str) -> None:
    (finished,) = run(with_functions, said(call("environment", how=how)))
    assert finished["success"] == (how != "raised")
    run(with_functions)
    assert held_by(with_functions) == {}
    _is_sound(with_functions)
    if how == "written":
        binary = (with_functions / "agents/ada/workspace/mine/all.bin").read_bytes()
        assert binary == b"\xff\x00" + b"*" * len(VALUES["FOO_AUTHENTICATION_TOKEN"])
        assert "a secret was taken out of mine/all.bin, mine/all.txt" in finished["output"]


def test_what_a_model_thinks_and_calls_by_itself_leaves_no_secret(org: Path) -> None:
    plain = resume("ada", model={"key": "acting"}, permissions={"read_outboxes": [], "tools": ["file_write"]})
    (org / "agents/ada/resume.json").write_text(json.dumps({**plain, "turn": {"max_steps": 3}}))
    wanted = {"id": ALL[0], "tool": "file_write", "args": {"path": "x.txt", "content": TEXT}}
    kept = {"blocks": [{"type": "thinking", "thinking": TEXT, ALL[0]: ALL}]}
    run(org, Reply(TEXT, calls=(wanted,), thinking=TEXT, kept=kept), said())
    assert "[redacted " in (org / "agents/ada/workspace/x.txt").read_text()
    assert held_by(org) == {}
    _is_sound(org)


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", [RequestRejected, RuntimeError, KeyError])
def test_an_error_with_keys_in_it_leaves_no_secret(org: Path, kind: Callable[[str], Exception]) -> None:
    secret = f"401 {{'authorization': 'Bearer {ALL[0]}'}} "
    for text in (secret, TEXT[:3000], TEXT[3000:6000], f"{'x' * 380}{VALUES['FOO_AUTHENTICATION_TOKEN']}"):
        run(org, kind(text), kind(text), kind(text))
    assert held_by(org) == {}


def test_a_call_out_of_which_a_secret_was_taken_is_not_made(with_functions: Path) -> None:
    key = VALUES["FOO_AUTHENTICATION_TOKEN"]
    finished = run(
        with_functions,
        said(
            call("sent_out", text=f"take {key}"),
            call("shell", command=f"echo {key} > key.txt"),
            call("http_post", url="http://127.0.0.1/", body=LOOKS["github"]),
            call("file_write", path="note.txt", content=f"it is {key}"),
        ),
    )
    assert [line["outcome"] for line in finished[:2]] == ["denied", "denied"]
    assert "a secret was taken out of its arguments" in finished[0]["output"]
    assert not (with_functions / "agents/ada/workspace/key.txt").exists()
    written = (with_functions / "agents/ada/workspace/note.txt").read_text()
    assert written == "it is [redacted FOO_AUTHENTICATION_TOKEN]"
    assert held_by(with_functions) == {}


def test_what_a_command_leaves_in_the_workspace_holds_no_secret(org: Path) -> None:
    (org / "config/org.json").write_text(json.dumps({"shell": {"sandbox": "none"}}))
    half = VALUES["FOO_AUTHENTICATION_TOKEN"]
    command = f"printf '%s' '{half[:8]}' > a; printf '%s' '{half[8:]}' >> a; cat a; touch -d 2001-01-01 a"
    (finished,) = run(org, said(call("shell", command=command)))
    assert finished["success"], finished
    assert (org / "agents/ada/workspace/a").read_text() == "[redacted FOO_AUTHENTICATION_TOKEN]"
    assert held_by(org) == {}


def test_what_people_and_programs_hand_in_leaves_no_secret(org: Path) -> None:
    write_person_entry(
        org, "bob", tick=1, kind="message", payload={"text": TEXT, ALL[0]: ALL}, tags=[ALL[0]], created_at=""
    )
    save_memory(org, "ada", "all", {"it": TEXT})
    with EngineLog(org) as log:
        log.warning("said", what=ALL[0], why=VALUES["DEPLOY_KEY"])
    run(org)
    run(org)
    assert held_by(org) == {}
    _is_sound(org)


@pytest.mark.long
def test_no_secret_is_in_what_is_packed(with_history: Path, tmp_path: Path) -> None:
    run(with_history, WORDS["entries"])
    run(with_history, said(*FILES["written"], *FILES["edited"]))
    run(with_history, said(call("environment", how="kept")))
    run(with_history)
    assert seal_old_journals(with_history, 300, 0)
    archive = tmp_path / "backup" / "all.tar.gz"
    archive.parent.mkdir()
    create_backup(Organisation(with_history), archive, wait_s=5)
    assert held_by(with_history) == {}
    assert held_by(archive.parent) == {}
    told = subprocess.run(["git", "log", "-p", "--all"], cwd=with_history, capture_output=True, timeout=PATIENCE_S)
    objects = [*with_history.glob("**/objects/??/*"), *with_history.glob("**/objects/pack/*.pack")]
    assert objects or told.returncode
    packed = [form for form in FORMS if form in told.stdout]
    assert packed == []


@pytest.mark.long
def test_a_secret_is_nowhere_whenever_the_process_dies(tmp_path: Path) -> None:
    """At every change of the disk of a turn that writes, and again after the next run."""
    number = 0
    while True:
        base, number = tmp_path / f"org{number}", number + 1
        ada = resume("ada", model={"key": "obeying"}, permissions={"read_outboxes": [], "tools": ["file_*"]})
        make_org(base, ada, models={"obeying": {"provider": "obeying"}})
        said_once = said(*FILES["edited"][:2], notes=TEXT[:500], memory_updates=[{"key": "k", "value": ALL[:5]}])
        try:
            with crash_at(number) as changes:
                run(base, said_once)
        except Killed:
            assert held_by(base) == {}
            run(base, said_once)
            assert held_by(base) == {}
        else:
            assert len(changes) == number - 1
            return


def _is_sound(base: Path) -> None:
    """Require that what is written is what was recorded, and that it comes out the same again."""
    assert verify_org(base).errors == []
    ticks = [1, 2] if (base / "logs/ticks/00000002.jsonl").exists() else [1]
    assert [replayed.tick for replayed in replay_ticks(base, ticks)] == ticks  # it raises where they differ
