"""The organisations of the corpus in which somebody waits: for an answer, or for a moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parts import by_hand, call, remembers

from lemming.kernel.base.jsontext import dump_pretty, parse
from lemming.kernel.files import fs
from lemming.libraries.outbox_files import write_person_entry
from lemming.testing import make_org, resume, say


def asked(base: Path, org: dict[str, Any]) -> None:
    """Requests of a person: one that another agent and a person are asked for, one cancelled, one expired."""
    to_bob = {"kind": "request", "payload": {"text": "how many?", "target": "bob"}, "tags": []}
    to_eve = {"kind": "request", "payload": {"text": "may I?", "target": "eve", "deadline": 1}, "tags": []}
    asks = {"outbox_entries": [to_bob, to_eve], "tool_calls": [], "memory_updates": [], "notes": ""}
    serves = {"schedule": {"wake": "addressed"}, "turn": {"take": "one"}}
    make_org(
        base,
        *(resume(name, **serves) for name in ("ada", "bob")),
        *(resume(name, model={"key": "human"}) for name in ("eve", "human")),
        org=org,
        script=[
            {"agent": "ada", "contains": "seven", "reply": remembers("seven", kind="response")},
            {"agent": "ada", "reply": asks},
            {"agent": "bob", "reply": remembers("seven", kind="response")},
        ],
    )
    by_hand(base, "human", 0, "first", text="how many?", target="ada", conversation="talk")
    by_hand(base, "human", 0, "second", text="never mind", target="ada", conversation="talk")
    by_hand(base, "human", 0, "late", text="at once!", target="bob", conversation="", deadline=0)
    by_hand(base, "human", 0, "over", kind="status", cancels="human/00000000_second")


def team(base: Path, org: dict[str, Any]) -> None:
    """Two questions that become six, one handed on, with budgets and a deadline that passes."""
    quiet = {"schedule": {"wake": "addressed"}}
    asks = [call("ask_ann", message="a?"), call("ask_bob", message="b?"), call("ask_cyd", message="c?", deadline=1)]
    make_org(
        base,
        resume("desk", team={"ask": ["ann", "bob", "cyd"], "hand_to": ["bill"]}, **quiet),
        resume("ann", team={"ask": ["bob"]}, **quiet),
        resume("bob", **quiet),
        resume("bill", **quiet),
        resume("cyd", schedule={"run_every_n_ticks": 50}),
        resume("human", model={"key": "human"}),
        org=org,
        models={"human": {"provider": "human"}},
        script=[
            {"agent": "desk", "contains": '"output": "', "reply": say("all of it", kind="response")},
            {"agent": "desk", "contains": "bill", "reply": say("", tool_calls=[call("hand_to_bill", message="x")])},
            {"agent": "desk", "reply": {**say("busy", kind="status"), "tool_calls": asks}},
            {"agent": "ann", "contains": '"output": "', "reply": say("from bob", kind="response")},
            {"agent": "ann", "reply": {**say("busy", kind="status"), "tool_calls": [call("ask_bob", message="?")]}},
            {"reply": say("here", kind="response")},
        ],
    )
    for number, (text, more) in enumerate((("hard", {"budget": 20}), ("bill", {}))):
        payload = {"text": text, "target": "desk", "conversation": str(number), **more}
        write_person_entry(base, "human", tick=1, kind="request", payload=payload, tags=[], created_at="")


def by_the_clock(base: Path, org: dict[str, Any]) -> None:
    """A cron schedule, a job of the calendar and one after it, an entry and a reminder that wait."""
    calls = [call("remind_me", text="look again", after="90m")]
    response = say("done", outbox_entries=[{"kind": "response", "payload": {"text": "done"}, "tags": []}])
    make_org(
        base,
        resume("ada", schedule={"cron": "0 */2 * * *"}, permissions={"tools": ["remind_me"]}, clock=True),
        resume("calendar", model={"key": "clock"}),
        resume("dan", schedule={"wake": "addressed"}, permissions={"read_outboxes": ["calendar", "human"]}),
        resume("human", model={"key": "human"}),
        org={**org, "timezone": "Europe/Berlin"},
        script=[
            {"agent": "ada", "step": 0, "reply": remembers("noted", tool_calls=calls)},
            {"agent": "dan", "reply": response},
        ],
    )
    page = {"agent": "dan", "text": "Write the page.", "cron": "0 2 * * *"}
    jobs = {"page": page, "post": {"agent": "dan", "text": "Post it.", "after": "page"}}
    fs.write_atomic(base, "config/calendar.json", dump_pretty({"jobs": jobs}))
    by_hand(base, "human", 1, "later", text="for dan", target="dan", not_before="2026-01-01T03:30:00Z")


def refused(base: Path, org: dict[str, Any]) -> None:
    """Two questions of a team, open for an hour: one refused for good, one too dear for its share."""
    quiet = {"schedule": {"wake": "addressed"}}
    asks = [call(f"ask_{name}", message=f"{name}?") for name in ("ann", "bob")]
    make_org(
        base,
        resume("ann", model={"key": "dear"}, **quiet),
        resume("bob", model={"key": "refuses"}, **quiet),
        resume("desk", team={"ask": ["ann", "bob"]}, **quiet),
        resume("human", model={"key": "human"}),
        org=org,
        models={"human": {"provider": "human"}},
        script=[
            {"agent": "desk", "contains": "FAILED", "reply": remembers("nobody", kind="response")},
            {"agent": "desk", "reply": {**say("asking"), "outbox_entries": [], "tool_calls": asks}},
            {"agent": "ann", "reply": say("never asked", kind="response")},
            {"agent": "bob", "error": "RequestRejected"},
        ],
    )
    models = parse((base / "config/models.json").read_bytes())
    own = next(entry for entry in models.values() if entry["provider"] == "scripted")
    further = {"dear": {**own, "per_call": 3.0}, "refuses": own}
    fs.write_atomic(base, "config/models.json", dump_pretty({**models, **further}))
    at = "2026-01-01T01:00:00.000Z"
    by_hand(base, "human", 0, "first", text="well?", target="desk", conversation="", budget=7, not_after=at)


def several(base: Path, org: dict[str, Any]) -> None:
    """Requests that one agent takes several of in a tick: answered, asked on, broken off, with files."""
    _several(base, org, may=["file_write", "file_read"])


def side_by_side(base: Path, org: dict[str, Any]) -> None:
    """The same without tools that change files: then the turns of a tick are taken at once."""
    _several(base, org, may=["file_read"])


def _several(base: Path, org: dict[str, Any], may: list[str]) -> None:
    to_bob = {"kind": "request", "payload": {"text": "how many?", "target": "bob"}, "tags": []}
    asks = {"outbox_entries": [to_bob], "tool_calls": [], "memory_updates": [], "notes": ""}
    writes = [call("file_write", path="notes.txt", content="written"), call("file_read", path="notes.txt")]
    quiet = {"schedule": {"wake": "addressed"}}
    make_org(
        base,
        resume(
            "ada",
            permissions={"read_outboxes": ["*"], "tools": may},
            turn={"take": "one", "requests": 3, "max_steps": 2, "repairs": 0},
            **quiet,
        ),
        resume("bob", turn={"take": "one", "requests": 2}, **quiet),
        resume("human", model={"key": "human"}),
        org=org,
        models={"human": {"provider": "human"}},
        script=[
            {"agent": "ada", "contains": "break", "reply": "no reply at all"},
            {"agent": "ada", "contains": "seven", "reply": remembers("seven", kind="response")},
            {"agent": "ada", "contains": "ask bob", "reply": asks},
            {"agent": "ada", "contains": "written", "reply": remembers("noted", kind="response")},
            {"agent": "ada", "contains": "note it", "reply": remembers("writing", tool_calls=writes)},
            {"reply": remembers("seven", kind="response")},
        ],
    )
    for number, text in enumerate(("ask bob", "ask bob too", "note it", "break", "note it again")):
        payload = {"text": text, "target": "ada", "conversation": str(number)}
        write_person_entry(base, "human", tick=1, kind="request", payload=payload, tags=[], created_at="")
