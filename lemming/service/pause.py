"""Pausing an agent, or all of them: one key, `paused`, in the resume or in `config/org.json`.

It is put in and taken out as text, so that whatever else a person has written there, spaces included, stays
as it was, and an agent that wakes for changes sees none.
"""

from __future__ import annotations

import re

from lemming.kernel.agents import load_agent
from lemming.kernel.base import paths
from lemming.kernel.base.jsontext import as_laid_out, compact, parse, pretty
from lemming.kernel.org.changing import changing_file
from lemming.kernel.org.config import ORG_FILE, load_config
from lemming.kernel.org.organisation import OrgPath

KEY = "paused"
_PUT_IN = re.compile(r'\n  "paused": "(?:[^"\\\n]|\\.)*",')


def pause_text(at: str, by: str, why: str) -> str:
    """Return what is written of a pause.

    >>> pause_text("2026-11-22T09:00:00.000Z", "ada", "too dear")
    'since 2026-11-22T09:00:00.000Z by ada: too dear'
    """
    return f"since {at} by {by}: {why}" if why else f"since {at} by {by}"


def paused_text(base: OrgPath, agent: str | None) -> str:
    """Return what is written of an agent's pause, or of the organisation's; empty when there is none.

    Raises `ConfigError` for a file that cannot be read as what it is.
    """
    return load_config(base).org.paused if agent is None else load_agent(base, agent).paused


def pause(base: OrgPath, agent: str | None, text: str) -> str:
    """Pause an agent, or all of them (None), unless that is so already; return what is written of it.

    Raises `ConfigError` for a file that is broken, `DiskError`.
    """
    paused_text(base, agent)  # or nothing is touched
    with changing_file(base, _file_of(agent)) as opened:
        if not (found := paused_text(base, agent)):
            opened.publish(with_pause(opened.raw, text))
        return found or text


def resume(base: OrgPath, agent: str | None) -> str:
    """End a pause; return what was written of it, empty when there was none. Raises as `pause`."""
    paused_text(base, agent)
    with changing_file(base, _file_of(agent)) as opened:
        if found := paused_text(base, agent):
            opened.publish(without_pause(opened.raw))
        return found


def with_pause(raw: bytes, text: str) -> bytes:
    """Return a JSON object's file with the key in front of all others.

    >>> with_pause(b'{"name": "ada"}', "too dear").decode()
    '{\\n  "paused": "too dear","name": "ada"}'
    """
    plain = parse(raw, allow_bom=True)
    wanted = {**plain, KEY: text}
    before, brace, after = raw.partition(b"{")
    put_in = before + brace + f'\n  "{KEY}": '.encode() + compact(text) + b"," + after
    return as_laid_out(put_in, wanted) if KEY not in plain else pretty(wanted)


def without_pause(raw: bytes) -> bytes:
    """Return a JSON object's file without the key.

    >>> without_pause(with_pause(b'{"name":  "ada"}', "too dear"))
    b'{"name":  "ada"}'
    """
    wanted = parse(raw, allow_bom=True)
    wanted.pop(KEY, None)
    taken_out = _PUT_IN.sub("", raw.decode("utf-8", "surrogateescape"), count=1)
    return as_laid_out(taken_out.encode("utf-8", "surrogateescape"), wanted)


def _file_of(agent: str | None) -> str:
    return ORG_FILE if agent is None else paths.resume_file(agent)
