"""Rehearsal of an edited resume or settings file before saving: the last ticks run again in a scratch fork."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from lemming.evals.rehearsal.rehearsal import RehearsalOptions, RehearsalResult, find_recorded_span, rehearse
from lemming.evals.rehearsal.rehearsal_runtime import describe_skipped_calls
from lemming.kernel.access.workspace_trust import allow_code
from lemming.kernel.agents import decode_resume, survey_agents
from lemming.kernel.base.errors import NotTrusted, UsageError
from lemming.kernel.org.config import load_config, preview_config
from lemming.kernel.org.organisation import Organisation
from lemming.operations.permission_grants import PermissionGrants
from lemming.queries.editable_files import SETTINGS_FILES, encode_draft, validate_text
from lemming.queries.permissions_required import list_required_permissions
from lemming.queries.sentences import describe_payload, entry_text
from lemming.queries.views.changes_view import require_fast_history

Json = dict[str, Any]
TICKS, SHOWN, DIFF_CHARS = 10, 60, 4000
LONGEST_S = 120.0
"""Time limit of a trial in a large organisation: a person waits for the result."""


def try_text(org: Organisation, file: str, text: str, *, is_dry: bool, longest_s: float = LONGEST_S) -> Json:
    """Run the last ticks again with an unsaved file and return the differences from the record.

    With `is_dry` no model is called: the result holds the number of changed prompts and their maximum cost.
    If no prompt changed, the differences are complete. No further tick begins after `longest_s` seconds, and
    the result says so.

    Raises: UsageError for a file that cannot be tried, a text with an error, or a past spread over very many
    journals; NotTrusted if a required permission is missing.
    """
    file, raw = encode_draft(org, file, text)
    for problem in validate_text(org, file, raw):
        if problem.severity == "error":
            raise UsageError(f"the draft is not valid: {problem.message}", hint=problem.hint)
    agents = dict(survey_agents(org).agents)
    if file in SETTINGS_FILES.values():
        config = preview_config(org, file, raw)
    else:
        config, name = load_config(org), file.split("/")[1]
        agents[name] = decode_resume(name, raw).value
    permissions = list_required_permissions(org, config, agents.values())
    if missing := PermissionGrants(Path(org.base)).find_missing(permissions):
        message = f"the workspace is not trusted: {'; '.join(map(str, missing[:3]))}"
        raise NotTrusted(message, hint="save it, then grant its permissions with `lemming trust`")
    require_fast_history(org, "to try this on the past")
    span = find_recorded_span(org)
    first = max(span.start, span.stop - TICKS)
    options = RehearsalOptions(first=first, last=span.stop - 1, files={file: raw}, is_dry=is_dry)
    with tempfile.TemporaryDirectory(prefix="lemming-try-") as scratch, _stop_after_timeout(longest_s) as stop:
        allow_code(scratch)  # with the same trust as the original
        result = rehearse(org, Path(scratch, "fork"), options, stop=stop)
    if result.last < options.last and not result.stopped_by:
        message = f"the trial took longer than {longest_s:g} seconds; `lemming rehearse` has no limit"
        result = replace(result, stopped_by=UsageError(message))
    has_differences = not (is_dry and result.unrecorded_prompts)
    differences = _differences_to_json(result) if has_differences else {}
    return {**_cost_to_json(result), **differences, "is_dry": not has_differences}


@contextlib.contextmanager
def _stop_after_timeout(seconds: float) -> Iterator[threading.Event]:
    """Yield an event, set after `seconds` of the block."""
    stop = threading.Event()
    timer = threading.Timer(seconds, stop.set)
    timer.daemon = True
    timer.start()
    try:
        yield stop
    finally:
        timer.cancel()


def _cost_to_json(result: RehearsalResult) -> Json:
    spent = result.spending
    return {
        "first": result.first,
        "last": result.last,
        "asked": len(result.unrecorded_prompts),
        "asked_of": Counter(prompt.agent for prompt in result.unrecorded_prompts).most_common(SHOWN),
        "not_made": [*describe_skipped_calls(result.skipped_calls)][:SHOWN],
        "reused": result.reused,
        "calls": spent.calls,
        "cost_usd": float(spent.dollars) if spent.calls > spent.unpriced else None,
        "at_most_usd": float(spent.max_dollars) if not spent.unpriced else None,
        "caveat": result.caveat,
        "stopped_by": str(result.stopped_by) if result.stopped_by else "",
        "remark": result.remark,
    }


def _differences_to_json(result: RehearsalResult) -> Json:
    return {
        "entries": [
            {
                "tick": difference.tick,
                "agent": difference.agent,
                "kind": difference.kind,
                "change": difference.change,
                "says": _describe_payload(difference.after or difference.before),
                "diff": difference.diff[:DIFF_CHARS],
            }
            for difference in result.entries[:SHOWN]
        ],
        "left_out": max(0, len(result.entries) - SHOWN),
        "ends": [
            {"tick": difference.tick, "agent": difference.agent, "before": difference.before, "after": difference.after}
            for difference in result.ends[:SHOWN]
        ],
        "files": [difference.path for difference in result.files[:SHOWN]],
        "is_alike": result.is_unchanged,
    }


def _describe_payload(entry: Json | None) -> str:
    """Describe the payload of an entry without text in a sentence. Returns: an empty string for an entry with text."""
    payload = (entry or {}).get("payload", {})
    if isinstance(payload.get("text"), str) and "call" not in payload:
        return ""
    return entry_text(payload) or describe_payload(payload)
