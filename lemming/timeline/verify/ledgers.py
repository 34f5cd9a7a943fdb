"""Each agent's ledger against the journals: every line that is still kept, and the lines that should be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lemming.base import paths
from lemming.base.jsontext import JsonProblem, parse
from lemming.files import fs
from lemming.files.documents import why_unreadable
from lemming.journal.ledger import FILE_LIMIT_BYTES, LINE_LIMIT_BYTES
from lemming.org.organisation import OrgPath
from lemming.timeline.verify.told import Mismatch, Told


def ledger_findings(base: OrgPath, told: Told) -> Iterator[Mismatch]:
    """Yield what is wrong with the ledgers of all agents whose turns the journals tell."""
    renamed = _turns_of_the_gone(base, told)
    for agent, turns in told.turns.items():
        if agent not in told.under_way:
            yield from _findings_of(base, told, agent, turns, renamed)


def _findings_of(
    base: OrgPath,
    told: Told,
    agent: str,
    turns: dict[int, dict[str, Any]],
    renamed: list[dict[int, dict[str, Any]]],
) -> Iterator[Mismatch]:
    file, last = paths.ledger_file(agent), max(turns)
    try:
        raw = fs.read_bytes(base / file, FILE_LIMIT_BYTES)
    except FileNotFoundError:
        is_error = (base / paths.agent_folder(agent)).is_dir()
        yield Mismatch(last, file, "missing", f"is gone; {agent} has had turns", is_error=is_error)
        return
    except OSError as error:
        yield Mismatch(last, file, "damage", why_unreadable(error))
        return
    if len(raw) > FILE_LIMIT_BYTES:
        yield Mismatch(last, file, "damage", f"is larger than the {FILE_LIMIT_BYTES >> 20} MiB of a ledger")
        return
    *whole, rest = raw.split(b"\n")
    lines: dict[int, dict[str, Any]] = {}
    for number, line in enumerate(whole, 1):
        try:
            plain = parse(line, limit_bytes=LINE_LIMIT_BYTES)
            lines[plain["tick"]] = plain
        except (JsonProblem, KeyError, TypeError) as error:
            before = max(lines, default=min(turns))
            yield Mismatch(
                before, file, "damage", f"line {number}, after tick {before}, is not a turn: {error}"
            )
    yield from _compare(file, lines, turns, told, renamed)
    if rest and last in lines:
        yield Mismatch(last, file, "damage", f"{len(rest)} bytes at its end are no whole line")


def _compare(
    file: str,
    lines: dict[int, dict[str, Any]],
    turns: dict[int, dict[str, Any]],
    told: Told,
    renamed: list[dict[int, dict[str, Any]]],
) -> Iterator[Mismatch]:
    """Hold a ledger's lines against the turns; `renamed` are turns that may have been its own before."""
    oldest = min(lines, default=min(turns))
    for tick, expected in turns.items():
        if tick < oldest:  # a ledger keeps its newest lines
            continue
        line = lines.get(tick)
        if line is None:
            yield Mismatch(tick, file, "missing", f"has no line for tick {tick}, in which there was a turn")
            continue
        if not _says(line, expected):
            key = next(key for key, value in expected.items() if line.get(key) != value)
            message = f"says {key} {line.get(key)!r} after tick {tick}; the journals say {expected[key]!r}"
            yield Mismatch(tick, file, "edited", message)
    for tick in lines.keys() - turns.keys():
        if (
            tick in told.ticks
            and tick not in told.damaged
            and not any(_says(lines[tick], former[tick]) for former in renamed if tick in former)
        ):
            yield Mismatch(
                tick, file, "unaccounted", f"has a line for tick {tick}, in which there was no turn"
            )


def _says(line: dict[str, Any], expected: dict[str, Any]) -> bool:
    return all(line.get(key) == value for key, value in expected.items())


def _turns_of_the_gone(base: OrgPath, told: Told) -> list[dict[int, dict[str, Any]]]:
    """Return the turns of agents whose folder is gone: each may have a new name, and its old ledger."""
    return [turns for agent, turns in told.turns.items() if not (base / paths.agent_folder(agent)).is_dir()]
