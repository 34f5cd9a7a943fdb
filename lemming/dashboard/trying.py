"""A resume or settings tried on the past before they are saved: the last ticks again, in a scratch fork."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from lemming.dashboard.files import encoded
from lemming.evals.rehearsal.again import tally
from lemming.evals.rehearsal.rehearse import Rehearsed, Wanted, recorded_span, rehearse
from lemming.facts.reach import reaches
from lemming.facts.typed_text import SETTINGS, editable, problems_of_text
from lemming.facts.views.past import require_past_at_hand
from lemming.facts.views.sentences import payload_text, text_said
from lemming.kernel.access.code_guard import allow_code
from lemming.kernel.agents import decode_resume, survey_agents
from lemming.kernel.base.errors import NotTrusted, UsageError
from lemming.kernel.org.config import config_with, load_config
from lemming.kernel.org.organisation import Organisation
from lemming.service.agreement import Agreement

Json = dict[str, Any]
TICKS, SHOWN, DIFF_CHARS = 10, 60, 4000
LONGEST_S = 120.0
"""So long a large organisation is tried: whoever waits for it has said nothing about how far."""


def try_text(org: Organisation, file: str, text: str, *, is_dry: bool, longest_s: float = LONGEST_S) -> Json:
    """Run the last ticks again with a file as it is typed, and return what would have been different.

    With `is_dry` no model is asked: it says how many questions would differ, and what asking them costs at
    most; where none would, what differs is known already. It begins no further tick after
    `longest_s`, and says so. Raises `UsageError` for a file that may not be tried, a text with a mistake, and
    where very many journals would have to be read, `NotTrusted` where nobody has agreed to what running does.
    """
    file, raw = editable(org, file), encoded(text)
    for problem in problems_of_text(org, file, raw):
        if problem.severity == "error":
            raise UsageError(f"what has a mistake cannot be tried: {problem.message}", hint=problem.hint)
    _require_agreement(org, file, raw)
    require_past_at_hand(org, "to try this on the past")
    span = recorded_span(org)
    first = max(span.start, span.stop - TICKS)
    wanted = Wanted(first=first, last=span.stop - 1, files={file: raw}, is_dry=is_dry)
    with tempfile.TemporaryDirectory(prefix="lemming-try-") as scratch, _stopping_after(longest_s) as stop:
        allow_code(scratch)  # as to the original
        found = rehearse(org, Path(scratch, "fork"), wanted, stop=stop)
    if found.last < wanted.last and not found.stopped_by:
        why = f"{longest_s:g} seconds were over; `lemming rehearse` goes on as long as it takes"
        found = replace(found, stopped_by=UsageError(why))
    is_known = not (is_dry and found.asked)
    return {**_cost(found), **(_differences(found) if is_known else {}), "is_dry": not is_known}


@contextlib.contextmanager
def _stopping_after(seconds: float) -> Iterator[threading.Event]:
    """Give what is set once so many seconds of the block are over."""
    stop = threading.Event()
    timer = threading.Timer(seconds, stop.set)
    timer.daemon = True
    timer.start()
    try:
        yield stop
    finally:
        timer.cancel()


def _require_agreement(org: Organisation, file: str, raw: bytes) -> None:
    """Raise `NotTrusted` where running it as it is typed does what nobody has agreed to."""
    agents = dict(survey_agents(org).agents)
    if file in SETTINGS.values():
        config = config_with(org, file, raw)
    else:
        config, name = load_config(org), file.split("/")[1]
        agents[name] = decode_resume(name, raw).value
    if lacking := Agreement(Path(org.base)).lacks(reaches(org, config, agents.values())):
        what = "; ".join(str(it) for it in lacking[:3])
        message = f"nobody here has agreed to what running this does: {what}"
        raise NotTrusted(message, hint="save it; `lemming trust` asks about it")


def _cost(found: Rehearsed) -> Json:
    spent = found.spending
    return {
        "first": found.first,
        "last": found.last,
        "asked": len(found.asked),
        "asked_of": Counter(it.agent for it in found.asked).most_common(SHOWN),
        "not_made": [*tally(found.not_made)][:SHOWN],
        "reused": found.reused,
        "calls": spent.calls,
        "cost_usd": float(spent.dollars) if spent.calls > spent.unpriced else None,
        "at_most_usd": float(spent.at_most) if not spent.unpriced else None,
        "caveat": found.caveat,
        "stopped_by": str(found.stopped_by) if found.stopped_by else "",
        "remark": found.remark,
    }


def _differences(found: Rehearsed) -> Json:
    entries = [
        {
            "tick": it.tick,
            "agent": it.agent,
            "kind": it.kind,
            "change": it.change,
            "says": _payload_in_words(it.after or it.before),
            "diff": it.diff[:DIFF_CHARS],
        }
        for it in found.entries[:SHOWN]
    ]
    ends = [{"tick": it.tick, "agent": it.agent, "before": it.before, "after": it.after} for it in found.ends]
    return {
        "entries": entries,
        "left_out": max(0, len(found.entries) - SHOWN),
        "ends": ends[:SHOWN],
        "files": [it.path for it in found.files[:SHOWN]],
        "is_alike": found.is_alike,
    }


def _payload_in_words(said: Json | None) -> str:
    """Return in a sentence what an entry says that has no text of its author's; empty for one that has."""
    payload = (said or {}).get("payload", {})
    if isinstance(payload.get("text"), str) and "call" not in payload:
        return ""
    return text_said(payload) or payload_text(payload)
