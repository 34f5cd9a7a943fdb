"""A tick as a notebook shows it: a row for each agent's turn, with what it wrote."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, DiskError
from lemming.kernel.base.html_tables import table, text
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.files.fields import Json
from lemming.kernel.messages import EntryName, read_entry

_HEADS = ("agent", "turn", "what happened", "calls", "credits", "seconds")
_MOST_CHARS, _MOST_ENTRIES = 400, 20


def tick_as_html(report: Json, base: str) -> str:
    """Return a line on a tick and a table of its turns; what they wrote is read from the outboxes.

    `report`: a `TickReport` as JSON; `base`: the organisation's folder, empty where nobody knows it.
    """
    totals = report["totals"]
    ended = "" if report["is_complete"] else ", stopped half-way"
    words = f"tick {report['tick']}{ended}: {totals['done']} done, entries: {totals['entries']}"
    if totals["failed"]:
        words += f", {totals['failed']} failed"
    rows = [
        (
            turn["agent"],
            turn["status"],
            "\n".join(_happened(base, turn)),
            turn["calls"] or "",
            f"{turn['credits']:g}" if turn["credits"] else "",
            f"{turn['duration_ms'] / 1000:.1f}" if turn["duration_ms"] else "",
        )
        for turn in report["turns"]
    ]
    return f"<p>{text(words)}, {totals['credits']:g} credits</p>{table(_HEADS, rows)}"


def _happened(base: str, turn: Json) -> Iterator[str]:
    """Yield what a turn did, a line each: its entries, its calls, its files, and why it did no more."""
    for entry in turn["entries"][:_MOST_ENTRIES]:
        yield f"{entry['kind']}: {_text_of(base, turn['agent'], entry)[:_MOST_CHARS]}"
    if more := len(turn["entries"]) - _MOST_ENTRIES:
        yield from [f"and {more} more"] if more > 0 else []
    for used in turn["tools"]:
        yield f"called {used['tool']}" + ("" if used["success"] else f", {used.get('outcome', 'failed')}")
    entries = {entry["file"] for entry in turn["entries"]}
    yield from (f"wrote {file['path']}" for file in turn["files"] if file["path"] not in entries)
    if turn["reason"]:
        yield turn["reason"]


def _text_of(base: str, author: str, written: Json) -> str:
    """Return what an entry says; its file's name where it is gone, or nobody knows the folder."""
    found = paths.ENTRY_FILE.match(written["file"].rsplit("/", 1)[-1])
    if not base or found is None:
        return str(written["file"])
    try:
        payload: dict[str, Any] = read_entry(
            paths.as_base(base), EntryName(int(found[1]), 0, found[2], author)
        ).payload
    except (OSError, ConfigError, DiskError):  # past its retention, or removed by hand
        return str(written["file"])
    said = payload.get("text")
    return said if isinstance(said, str) else to_line(payload)
