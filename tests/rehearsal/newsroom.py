"""An organisation with a record to rehearse: a writer, a reader of hers, a reader of his, and a person."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lemming.engine import load_tick, run_once
from lemming.evals.rehearsal.rehearsal import RehearsalOptions, RehearsalResult, find_recorded_span, rehearse
from lemming.journal_tools.fork import SettingOverride
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.files import fs
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.outbox_files import write_person_entry
from lemming.testing import SCRIPT_FILE, FrozenClock, make_org, resume, say

LOUD = "config/loud.jsonl"
LOUDER = SettingOverride.parse("agents/bob/resume.json:/model/key=loud")
TICKS = 4
HUMAN_SPEAKS = 3


def reads(*names: str) -> dict[str, Any]:
    return {"permissions": {"read_outboxes": [*names], "tools": []}}


def newsroom(base: Path, *, bill: Path, **org: Any) -> Path:
    """Make it, with a provider that writes each call it gets into `bill`, and run its ticks."""
    priced = {"usd_per_million_input_tokens": 1.0, "usd_per_million_output_tokens": 1.0, "max_output_tokens": 100}
    models = {
        key: {"provider": "stand-in", "options": {"file": file, "bill": str(bill)}, **priced}
        for key, file in (("scripted", SCRIPT_FILE), ("loud", LOUD))
    }
    make_org(
        base,
        resume("ada", **reads("human")),
        resume("bob", **reads("ada")),
        resume("cyd", **reads("bob")),
        resume("human", model={"key": "human"}),
        script=[
            {"agent": "ada", "contains": "Rain", "reply": say("It rains.")},
            {"agent": "cyd", "contains": "WHAT", "reply": say("He shouts.")},
            {"reply": say("fine", memory_updates=[{"key": "last", "value": "fine"}])},
        ],
        models={**models, "human": {"provider": "human"}},
        org={"durability": "off", "plugins": ["lemming.testing.stand_in_provider"], **org},
    )
    fs.write_atomic(base, LOUD, f"{to_line({'reply': say('WHAT?')})}\n".encode())
    clock = FrozenClock()
    for tick in range(1, TICKS + 1):
        clock.advance(60)
        if load_tick(base) == HUMAN_SPEAKS:
            words = {"text": "Rain is coming."}
            write_person_entry(base, "human", tick=tick, kind="message", payload=words, tags=[], created_at="")
        run_once(base, clock=clock)
    return base


def asked(bill: Path) -> list[str]:
    """Return the calls that the provider got, as "tick agent call"."""
    return bill.read_text().splitlines() if bill.exists() else []


def again(
    base: Path, folder: Path, *settings: SettingOverride, ticks: range | None = None, **how: Any
) -> RehearsalResult:
    org = Organisation.from_path(base)
    span = find_recorded_span(org, ticks)
    return rehearse(org, folder, RehearsalOptions(span.start, span.stop - 1, settings, **how))
