"""Compare ledgers with the amounts recorded in journals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lemming.journal_tools.verify.journal_facts import JournalFacts, make_mismatch
from lemming.journal_tools.verify.verification_inputs import VerificationInputs
from lemming.kernel.base import paths
from lemming.kernel.base.errors import Problem
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.files import fs
from lemming.kernel.files.json_documents import unreadable_reason
from lemming.kernel.journal.ledger import FILE_LIMIT_BYTES, LINE_LIMIT_BYTES
from lemming.kernel.org.organisation import OrgPath


def verify_ledgers(inputs: VerificationInputs) -> Iterator[Problem]:
    """Yield the mismatches of the ledgers of all agents with turns in the journals."""
    base, facts = inputs.base, inputs.journal_facts
    # An agent without a folder may have been renamed, and its ledger with it.
    former_turns = [turns for agent, turns in facts.turns.items() if not (base / paths.agent_folder(agent)).is_dir()]
    for agent, turns in facts.turns.items():
        if agent not in facts.under_way:
            yield from _verify_ledger(base, facts, agent, turns, former_turns)


def _verify_ledger(
    base: OrgPath,
    facts: JournalFacts,
    agent: str,
    turns: dict[int, dict[str, Any]],
    former_turns: list[dict[int, dict[str, Any]]],
) -> Iterator[Problem]:
    file, last = paths.ledger_file(agent), max(turns)
    try:
        raw = fs.read_bytes(base / file, FILE_LIMIT_BYTES)
    except FileNotFoundError:
        is_error = (base / paths.agent_folder(agent)).is_dir()
        yield make_mismatch(last, file, "missing", f"does not exist; {agent} has had turns", is_error=is_error)
        return
    except OSError as error:
        yield make_mismatch(last, file, "damage", unreadable_reason(error))
        return
    if len(raw) > FILE_LIMIT_BYTES:
        yield make_mismatch(
            last, file, "damage", f"is larger than the limit of {FILE_LIMIT_BYTES >> 20} MiB for a ledger"
        )
        return
    *complete_lines, surplus = raw.split(b"\n")
    lines: dict[int, dict[str, Any]] = {}
    for number, line in enumerate(complete_lines, 1):
        try:
            fields = parse(line, limit_bytes=LINE_LIMIT_BYTES)
            lines[fields["tick"]] = fields
        except (JsonProblem, KeyError, TypeError) as error:
            previous_tick = max(lines, default=min(turns))
            yield make_mismatch(
                previous_tick, file, "damage", f"line {number}, after tick {previous_tick}, must be a turn: {error}"
            )
    yield from _compare_ledger(file, lines, turns, facts, former_turns)
    if surplus and last in lines:
        yield make_mismatch(last, file, "damage", f"{len(surplus)} bytes at its end are not a whole line")


def _compare_ledger(
    file: str,
    lines: dict[int, dict[str, Any]],
    turns: dict[int, dict[str, Any]],
    facts: JournalFacts,
    former_turns: list[dict[int, dict[str, Any]]],
) -> Iterator[Problem]:
    """Compare the lines of a ledger with the turns; `former_turns` are turns possibly taken under another name."""
    oldest = min(lines, default=min(turns))
    for tick, expected in turns.items():
        if tick < oldest:  # a ledger keeps its newest lines
            continue
        line = lines.get(tick)
        if line is None:
            yield make_mismatch(tick, file, "missing", f"has no line for tick {tick}, in which there was a turn")
            continue
        if not _matches(line, expected):
            key = next(key for key, value in expected.items() if line.get(key) != value)
            message = f"{key} must be {expected[key]!r} after tick {tick} by the journals, got {line.get(key)!r}"
            yield make_mismatch(tick, file, "edited", message)
    for tick in lines.keys() - turns.keys():
        if (
            tick in facts.ticks
            and tick not in facts.damaged
            and not any(_matches(lines[tick], turns[tick]) for turns in former_turns if tick in turns)
        ):
            yield make_mismatch(tick, file, "unaccounted", f"has a line for tick {tick}, which has no turn")


def _matches(line: dict[str, Any], expected: dict[str, Any]) -> bool:
    return all(line.get(key) == value for key, value in expected.items())
