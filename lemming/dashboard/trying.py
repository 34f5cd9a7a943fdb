"""A resume tried on the past before it is saved: recorded ticks again, in a fork that is thrown away."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from lemming.access.trust import Agreement
from lemming.agents import survey_agents
from lemming.base import paths
from lemming.base.errors import NotTrusted, UsageError
from lemming.base.jsontext import JsonProblem, parse
from lemming.evals.rehearsal.rehearse import Rehearsed, Wanted, recorded_span, rehearse
from lemming.facts.reach import reaches
from lemming.facts.views.agent import resume_raw
from lemming.org.config import load_config
from lemming.org.organisation import Organisation
from lemming.timeline.fork import Setting

Json = dict[str, Any]
TICKS, SHOWN, DIFF_CHARS = 10, 60, 4000


def try_resume(org: Organisation, name: str, text: str, *, is_dry: bool) -> Json:
    """Run the last ticks again with a resume as it is typed, and return what would have been different.

    With `is_dry` no model is asked: it says how many questions would differ, and what asking them costs at
    most. Raises `UsageError` for a resume that is none, `NotTrusted` where nobody has agreed to running this.
    """
    if not paths.AGENT_NAME.match(name):
        raise UsageError(f'"{name[:80]}" is no agent', hint=paths.AGENT_NAME_RULE)
    settings = _settings(paths.resume_file(name), _parsed(resume_raw(org, name)), _parsed(text.encode()))
    _require_agreement(org)
    span = recorded_span(org)
    first = max(span.start, span.stop - TICKS)
    wanted = Wanted(first=first, last=span.stop - 1, settings=tuple(settings), is_dry=is_dry)
    with tempfile.TemporaryDirectory(prefix="lemming-try-") as scratch:
        found = rehearse(org, Path(scratch, "fork"), wanted)
    return {**_cost(found), **({} if is_dry else _differences(found)), "is_dry": is_dry}


def _parsed(raw: bytes) -> Json:
    try:
        plain = parse(raw, allow_bom=True)
    except JsonProblem as error:
        raise UsageError(f"a resume that is no JSON cannot be tried: {error}") from error
    if not isinstance(plain, dict):
        raise UsageError("a resume is a JSON object")
    return plain


def _settings(file: str, before: Json, after: Json) -> list[Setting]:
    """Return what is set in a resume, key by key."""
    if gone := [key for key in before if key not in after]:
        hint = "save it and run `lemming rehearse`, which goes by the file"
        raise UsageError(
            f"what is taken out of a resume cannot be tried before: {', '.join(gone)}", hint=hint
        )
    return [Setting(file, f"/{key}", it) for key, it in after.items() if before.get(key, file) != it]


def _require_agreement(org: Organisation) -> None:
    found = reaches(org, load_config(org), survey_agents(org).agents.values())
    if lacking := Agreement(Path(org.base)).lacks(found):
        what = "; ".join(str(it) for it in lacking[:3])
        message = f"nobody here has agreed to what running this does: {what}"
        raise NotTrusted(message, hint="`lemming trust --yes` agrees to it")


def _cost(found: Rehearsed) -> Json:
    spent = found.spending
    return {
        "first": found.first,
        "last": found.last,
        "asked": len(found.asked),
        "reused": found.reused,
        "calls": spent.calls,
        "cost_usd": float(spent.dollars) if spent.calls > spent.unpriced else None,
        "at_most_usd": float(spent.at_most) if not spent.unpriced else None,
        "cannot_tell": found.cannot_tell,
        "stopped_by": str(found.stopped_by) if found.stopped_by else "",
        "scripted": found.scripted,
        "remark": found.remark,
    }


def _differences(found: Rehearsed) -> Json:
    entries = [
        {
            "tick": it.tick,
            "agent": it.agent,
            "kind": it.kind,
            "change": it.change,
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
