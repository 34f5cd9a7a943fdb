"""What a report says to a reader without JavaScript: agents, the newest ticks and entries, as plain HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lemming.base.html_tables import table, text

Json = dict[str, Any]
AGENTS, TICKS, ENTRIES, TEXT_CHARS = 200, 20, 30, 400


def summary_of(header: Json, overview: Json, entries: Sequence[Json]) -> str:
    """Return the summary as HTML, in which every text stands escaped."""
    agents = overview.get("agents", {}).get("rows", [])[:AGENTS]
    ticks = overview.get("ticks", {}).get("ticks", [])[-TICKS:][::-1]
    parts = [
        f"<h1>{text(header['org'])}</h1>",
        f"<p>{text(header['why'])}. Next is tick {text(header['tick'])}; {text(header.get('waiting', 0))} "
        "waiting for people. This is a summary: with JavaScript the page shows all of it.</p>",
        _table("Agents", ("Agent", "Now", "Last words"), map(_agent, agents)),
        _table("Newest ticks", ("Tick", "When", "Turns", "Entries", "Worst end"), map(_tick, ticks)),
        _table("Newest entries", ("Tick", "Agent", "Kind", "Text"), map(_entry, entries[:ENTRIES])),
    ]
    return f'<main class="summary">{"".join(parts)}</main>'


def _agent(row: Json) -> tuple[Any, ...]:
    last = row.get("last") or {}
    return row["name"], row["text"] or row["state"].replace("_", " "), last.get("text", "")


def _tick(row: Json) -> tuple[Any, ...]:
    worst = row["problem"] or row["worst"] or row["status"]
    return row["tick"], row["at"], f"{row['turns']} of {row['planned']}", row["entries"], worst


def _entry(entry: Json) -> tuple[Any, ...]:
    return entry["tick"], entry["agent"], entry["kind"], entry["text"][:TEXT_CHARS]


def _table(title: str, heads: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> str:
    told = table(heads, rows)
    return f"<h2>{title}</h2>{told}" if told else ""
