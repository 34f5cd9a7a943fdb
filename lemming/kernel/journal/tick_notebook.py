"""HTML view of a tick for notebooks: a row for each turn, with the written entries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, DiskError
from lemming.kernel.base.html_tables import escape_cell, render_table
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.files.field_types import Json
from lemming.kernel.messages import EntryName, read_entry

_COLUMNS = ("agent", "turn", "what happened", "calls", "credits", "seconds")
_MAX_CHARS, _MAX_ENTRIES = 400, 20


def tick_as_html(report: Json, base: str) -> str:
    """Return a summary line of a tick and a table of its turns. Entries are read from the outboxes.

    `report` is a `TickReport` as JSON, `base` the organisation's folder (empty if unknown).
    """
    totals = report["totals"]
    suffix = "" if report["is_complete"] else ", stopped half-way"
    summary = f"tick {report['tick']}{suffix}: {totals['done']} done, entries: {totals['entries']}"
    if totals["failed"]:
        summary += f", {totals['failed']} failed"
    rows = [
        (
            turn["agent"],
            turn["status"],
            "\n".join(_describe_turn(base, turn)),
            turn["calls"] or "",
            f"{turn['credits']:g}" if turn["credits"] else "",
            f"{turn['duration_ms'] / 1000:.1f}" if turn["duration_ms"] else "",
        )
        for turn in report["turns"]
    ]
    return f"<p>{escape_cell(summary)}, {totals['credits']:g} credits</p>{render_table(_COLUMNS, rows)}"


def _describe_turn(base: str, turn: Json) -> Iterator[str]:
    """Yield a line for each action of a turn: entries, calls, files, and the reason the turn stopped."""
    for entry in turn["entries"][:_MAX_ENTRIES]:
        yield f"{entry['kind']}: {_entry_text(base, turn['agent'], entry)[:_MAX_CHARS]}"
    if remaining := len(turn["entries"]) - _MAX_ENTRIES:
        yield from [f"and {remaining} more"] if remaining > 0 else []
    for tool_use in turn["tools"]:
        yield f"called {tool_use['tool']}" + ("" if tool_use["success"] else f", {tool_use.get('outcome', 'failed')}")
    entries = {entry["file"] for entry in turn["entries"]}
    yield from (f"wrote {file['path']}" for file in turn["files"] if file["path"] not in entries)
    if turn["reason"]:
        yield turn["reason"]


def _entry_text(base: str, author: str, entry: Json) -> str:
    """Return the text of an entry, or the entry's file name if the file is gone or the folder unknown."""
    match = paths.ENTRY_FILE.match(entry["file"].rsplit("/", 1)[-1])
    if not base or match is None:
        return str(entry["file"])
    try:
        payload: dict[str, Any] = read_entry(paths.as_base(base), EntryName(int(match[1]), 0, match[2], author)).payload
    except (OSError, ConfigError, DiskError):  # past its retention, or removed by hand
        return str(entry["file"])
    text = payload.get("text")
    return text if isinstance(text, str) else to_line(payload)
