"""Pause an agent or the whole organisation: the key `paused` in the resume or in `config/org.json`.

The key is inserted and removed as text. All other text of the user, including spaces, stays unchanged, and an
agent with wake "changed" sees no change. Agents in a broken loop are paused at the end of the tick.
"""

from __future__ import annotations

import re

from lemming.kernel.agents import load_agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import LemmingError, Problem
from lemming.kernel.base.jsontext import dump_compact, dump_pretty, parse
from lemming.kernel.journal.turn_report import TickReport
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.runtime import Runtime
from lemming.libraries.settings_edits import edit_file, preserve_layout

KEY = "paused"
_INSERTED_KEY = re.compile(r'\n  "paused": "(?:[^"\\\n]|\\.)*",')


def make_pause_text(since: str, author: str, reason: str) -> str:
    """Return the value of the key for a pause.

    >>> make_pause_text("2026-11-22T09:00:00.000Z", "ada", "too dear")
    'since 2026-11-22T09:00:00.000Z by ada: too dear'
    """
    return f"since {since} by {author}: {reason}" if reason else f"since {since} by {author}"


def load_pause(base: OrgPath, agent: str | None) -> str:
    """Return the pause text of an agent or the organisation, or "". Raises: ConfigError for an invalid file."""
    return load_config(base).org.paused if agent is None else load_agent(base, agent).paused


def pause_agent(base: OrgPath, agent: str | None, text: str) -> str:
    """Pause an agent or all (None), unless paused; return the pause text. Raises: ConfigError, DiskError."""
    load_pause(base, agent)  # raises before any write
    with edit_file(base, _get_settings_file(agent)) as locked_file:
        if not (existing := load_pause(base, agent)):
            locked_file.publish(insert_pause(locked_file.raw, text))
        return existing or text


def unpause_agent(base: OrgPath, agent: str | None) -> str:
    """End a pause; return the former pause text, or "". Raises: ConfigError for an invalid file, DiskError."""
    load_pause(base, agent)
    with edit_file(base, _get_settings_file(agent)) as locked_file:
        if existing := load_pause(base, agent):
            locked_file.publish(remove_pause(locked_file.raw))
        return existing


def insert_pause(raw: bytes, text: str) -> bytes:
    """Return a JSON file with the key `paused` in front of all other keys.

    >>> parse(insert_pause(b'{"name": "ada"}', "too dear"))["paused"]
    'too dear'
    """
    document = parse(raw, allow_bom=True)
    updated = {**document, KEY: text}
    head, brace, tail = raw.partition(b"{")
    inserted = head + brace + f'\n  "{KEY}": '.encode() + dump_compact(text) + b"," + tail
    return preserve_layout(inserted, updated) if KEY not in document else dump_pretty(updated)


def remove_pause(raw: bytes) -> bytes:
    """Return a JSON file without the key `paused`.

    >>> remove_pause(insert_pause(b'{"name":  "ada"}', "too dear"))
    b'{"name":  "ada"}'
    """
    updated = parse(raw, allow_bom=True)
    updated.pop(KEY, None)
    shortened = _INSERTED_KEY.sub("", raw.decode("utf-8", "surrogateescape"), count=1)
    return preserve_layout(shortened.encode("utf-8", "surrogateescape"), updated)


def _get_settings_file(agent: str | None) -> str:
    return paths.ORG_FILE if agent is None else paths.resume_file(agent)


BY_LOOP_BREAKER = "by the loop breaker"
"""The author of a pause, as the resume names it."""


def pause_looping_agents(runtime: Runtime, report: TickReport) -> None:
    """Pause the agents named by a tick's turn reports, and report each pause.

    The turn's record already contains the pause, so after a crash the rest of the tick repeats the call.
    """
    for turn in (turn for turn in report.turns if turn.stopped):
        reason = f"since tick {report.tick} {BY_LOOP_BREAKER}: {turn.stopped}"
        message = f"{turn.agent} is paused: {turn.stopped}"
        try:
            pause_agent(runtime.base, turn.agent, reason)
        except LemmingError as error:  # the resume is missing or not writable
            message = f"{turn.agent} could not be paused ({error}): {turn.stopped}"
        hint = f"see the last turn with `lemming tick {report.tick}`, then run `lemming unpause {turn.agent}`"
        file = paths.resume_file(turn.agent)
        runtime.report_problem(Problem(message, file, hint=hint, severity="warning", code="LMG-405"), turn.agent)
