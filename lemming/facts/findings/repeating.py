"""Going round in circles: the same again, two who only answer each other, turns that leave nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lemming.facts.findings.finding import Finding, named, quoted
from lemming.facts.findings.look import Look
from lemming.kernel.base.jsontext import compact
from lemming.kernel.base.payload_text import text_of_payload
from lemming.kernel.base.wording import counted
from lemming.kernel.messages import OutboxEntry
from lemming.timeline.record import ToolUse, TurnRecord

Deed = tuple[str, ...]
"""Something said or done: equal where it is the same, in other words as capitals, spaces and signs go."""

_BESIDE_WORDS = re.compile(r"[\W_]+")
_OUTBOX = "/outbox/"
_ABOUT = ("reply_to", "hands_on", "cancels")


def normalised(text: str) -> str:
    """Return a text as it is compared: its words, whatever capitals, spaces and signs are between them.

    >>> normalised("  All is   WELL!! ")
    'all is well'
    """
    return _BESIDE_WORDS.sub(" ", text).strip().casefold() or text.strip()


def deed_of(entry: OutboxEntry) -> Deed:
    """Return what an entry says, to whom, and which request it answers: the same answer to two is not one."""
    payload = entry.payload
    about = f"{[payload.get(key) for key in _ABOUT]}"
    text = normalised(text_of_payload(payload))
    return "said", entry.kind, text, ",".join(sorted(entry.targets)), about


def called(use: ToolUse) -> Deed:
    """Return a tool call with what it gave: to look again and be told something else is no repetition."""
    return "called", use.tool, compact(use.args).decode(), f"{use.success}", use.output


def sayings(turn: TurnRecord) -> dict[Deed, OutboxEntry]:
    """Return what a turn said that is not empty."""
    return {deed: entry for entry in turn.entries if (deed := deed_of(entry))[2]}


def callings(turn: TurnRecord) -> dict[Deed, ToolUse]:
    """Return the calls that a turn made and that have ended."""
    return {called(use): use for use in turn.tools if use.success is not None}


def leavings(turn: TurnRecord) -> set[Deed]:
    """Return the files and memories that a turn left, with what is in them; entries are sayings."""
    written = turn.report.files if turn.report else []
    left = {("left", file["path"], file["sha256"]) for file in written if _OUTBOX not in file["path"]}
    ahead = turn.report.written_ahead if turn.report else []
    return left | {("left", place, f"{turn.tick}") for place in ahead}


def firsts(turns: Iterable[TurnRecord]) -> list[set[Deed]]:
    """Return for each of an agent's turns, in their order, what it said, left and learned first."""
    known: set[Deed] = set()
    found = []
    for turn in turns:
        deeds = {*sayings(turn), *callings(turn), *leavings(turn)}
        found.append(deeds - known)
        known |= deeds
    return found


Deeds = dict[Deed, list[int]]
"""In which of an agent's turns, by number, it said or did what."""


def repeats(look: Look) -> Iterator[Finding]:
    """Yield for each agent what it says over and over, or does over and over for nothing."""
    for agent, turns in look.by_agent.items():
        found = {**_deeds_in(look, turns), **_done_in(turns)}
        close = {deed: _close_by(numbers, look.settings.repeats) for deed, numbers in found.items()}
        deed = max(close, key=lambda it: len(close[it]), default=None)
        if deed is None or not close[deed]:
            continue
        again = [turns[number] for number in close[deed]]
        yield Finding(
            kind="repeats",
            agents=(agent,),
            message=f"{agent} {_words_for(deed, again[-1])} in {counted(len(again), 'turn')}",
            since=again[0].tick,
            evidence=named(again),
            hint=f'have {agent} take turns only when something is new ("wake": "changed"), or say in its '
            "instructions what to do when nothing is",
        )


def _deeds_in(look: Look, turns: Sequence[TurnRecord]) -> Deeds:
    """Return what an agent said; a question that was answered may be asked anew."""
    found: Deeds = {}
    for number, turn in enumerate(turns):
        for deed, entry in sayings(turn).items():
            request = look.requests.by_identity.get(entry.identity) if entry.kind == "request" else None
            if request is None or request.end != "answered":
                found.setdefault(deed, []).append(number)
    return found


def _done_in(turns: Sequence[TurnRecord]) -> Deeds:
    """Return the calls that gave what they had given before, in turns that brought nothing else either."""
    found: Deeds = {}
    new = firsts(turns)
    for number, turn in enumerate(turns):
        for deed in callings(turn):
            if deed in new[number] or not new[number]:
                found.setdefault(deed, []).append(number)
    return found


def _close_by(numbers: list[int], wanted: int) -> list[int]:
    """Return the turns of which so many stand close by each other; what comes round rarely is no circle.

    >>> _close_by([0, 2, 4, 30], 3), _close_by([0, 12, 24], 3)
    ([0, 2, 4], [])
    """
    close: set[int] = set()
    for place in range(len(numbers) - wanted + 1):
        together = numbers[place : place + wanted]
        if together[-1] - together[0] < 2 * wanted:
            close.update(together)
    return sorted(close)


def _words_for(deed: Deed, turn: TurnRecord) -> str:
    """Return what was done again, quoted to the letter as that turn said it."""
    if deed[0] == "called":
        return f"called {deed[1]} {quoted(deed[2])} and was given the same"
    to = f" to {deed[3].replace(',', ', ')}" if deed[3] else ""
    return f"wrote{to} the same {deed[1]}, {quoted(text_of_payload(sayings(turn)[deed].payload))},"


def ping_pong(look: Look) -> Iterator[Finding]:
    """Yield each two agents that do nothing but answer each other: no third, no file, no memory between."""
    longest: dict[frozenset[str], list[TurnRecord]] = {}
    current: dict[frozenset[str], list[TurnRecord]] = {}
    for turn in look.turns:
        partner = _only_answers(look, turn)
        if partner is None and not (turn.entries or turn.tools or leavings(turn) or turn.shown):
            continue
        pair = frozenset((turn.agent, partner)) if partner else None
        for other in [it for it in current if turn.agent in it and it != pair]:
            del current[other]
        if pair:
            before = current.get(pair, [])
            current[pair] = [*before, turn] if before and before[-1].agent == partner else [turn]
            longest[pair] = max(longest.get(pair, []), current[pair], key=len)
    for both, turns in longest.items():
        if len(turns) >= 2 * look.settings.ping_pong:
            one, another = sorted(both)
            yield Finding(
                kind="ping_pong",
                agents=(one, another),
                message=f"{one} and {another} have answered each other {counted(len(turns), 'time')} "
                "in a row, and nothing else came of it",
                since=turns[0].tick,
                evidence=named(turns),
                hint="say in their instructions who has the last word, and let them speak only when they are "
                'asked: "wake": "addressed"',
            )


def _only_answers(look: Look, turn: TurnRecord) -> str | None:
    """Return the agent that a turn does nothing but answer; None where it does more, or less."""
    if not turn.entries or turn.tools or leavings(turn) or not turn.shown:
        return None
    authors = {look.author_of.get(identity, "") for identity in turn.shown}
    if len(authors) != 1 or not look.takes_turns(author := authors.pop()) or author == turn.agent:
        return None
    request = look.request_of(turn)
    if request is not None and look.requests.root_of(request).asker not in (author, turn.agent):
        return None  # somebody else waits for it
    return author


def works_on(look: Look) -> Iterator[Finding]:
    """Yield each agent that has answered, is shown nothing new, and takes turns that leave nothing."""
    for agent, turns in look.by_agent.items():
        rows = [row for row in _idle_rows(turns) if row.is_after_the_end]
        row = max(rows, key=lambda row: len(row.turns), default=None)
        if row and row.before and len(row.turns) >= look.settings.works_on:
            yield Finding(
                kind="works_on",
                agents=(agent,),
                message=f"{agent} answered in tick {row.before.tick} and took "
                f"{counted(len(row.turns), 'turn')} after that, which cost credits and left nothing",
                since=row.turns[0].tick,
                evidence=named([row.before, *row.turns]),
                hint=f'have {agent} take turns only when it is asked: "wake": "addressed" in its schedule',
            )


def no_progress(look: Look) -> Iterator[Finding]:
    """Yield each agent whose turns cost credits, one after another, and leave nothing."""
    for agent, turns in look.by_agent.items():
        row = max(_idle_rows(turns), key=lambda row: len(row.turns), default=None)
        if row is None or len(row.turns) < look.settings.no_progress:
            continue
        if row.is_after_the_end and "works_on" not in look.settings.off:
            continue  # which tells of it
        spent = sum(turn.report.credits for turn in row.turns if turn.report)
        newest = row.turns[-1].tick
        yield Finding(
            kind="no_progress",
            agents=(agent,),
            message=f"{agent} spent {spent:g} credits in {counted(len(row.turns), 'turn')} in a row that "
            "left no entry, no file and no memory, and learned nothing new",
            since=row.turns[0].tick,
            evidence=named(row.turns),
            hint=f"`lemming tick {newest}` shows the last of them; `lemming pause {agent}`, or "
            '"wake": "changed" in its schedule',
        )


@dataclass
class _Row:
    """Turns in a row that cost credits and left nothing, and the one before them that did something."""

    before: TurnRecord | None
    turns: list[TurnRecord]

    @property
    def is_after_the_end(self) -> bool:
        """Whether it follows an answer, and nothing new came up."""
        has_answered = self.before and any(entry.kind == "response" for entry in self.before.entries)
        return bool(has_answered) and not any(turn.shown for turn in self.turns)


def _idle_rows(turns: Sequence[TurnRecord]) -> list[_Row]:
    rows, row = list[_Row](), _Row(None, [])
    for turn, learned in zip(turns, firsts(turns), strict=True):
        if _spends(turn) and not (turn.entries or leavings(turn) or learned):
            if not row.turns:
                rows.append(row)
            row.turns.append(turn)
        elif turn.status != "skipped":
            row = _Row(turn, [])
    return rows


def _spends(turn: TurnRecord) -> bool:
    report = turn.report
    return report is not None and (report.credits > 0 or bool(report.cost_usd)) and report.end != "waits"
