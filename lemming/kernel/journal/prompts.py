"""What turns start from, written once: prompts show the same lines again and again, and agents begin alike.

In a `turn_started` as it is written, `opening` holds what every turn of the agent begins with, or the tick in
whose journal that stands; `situation` holds the last message, line by line: text, or the places of lines that
an earlier `turn_started` spells out. A place is a tick and the number of a line among the long ones that its
journal spells out. Only journals of one segment refer to each other. Format: docs/formats.md, "Journal".
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

from lemming.kernel.base import paths
from lemming.kernel.base.turn_numbers import turn_key
from lemming.kernel.files.descriptors import LONGEST_LINE_BYTES
from lemming.kernel.files.fields import Json, Schema, object_of
from lemming.kernel.journal.record_parts import IN_THE_OPENING
from lemming.kernel.journal.records import TurnStarted
from lemming.kernel.journal.sealing import TICKS_PER_SEGMENT

SHORTEST_LINE = 64
"""Shorter lines are spelled out: naming their place would save next to nothing."""

LINES_REMEMBERED = 100_000  # a bound on memory; what is forgotten is spelled out once more
Part = str | list[int]
"""Lines of text, or the places of lines: ticks and numbers in turn."""


class NoPrompt(ValueError):
    """What a `turn_started` refers to is not there; the message says where it should be."""


def is_referring(plain: Json) -> bool:
    """Return whether a line's `turn_started` leaves anything to others."""
    return "situation" in plain and plain.get("type") == "turn_started"


def referring_schema() -> Schema:
    """Return the schema of a `turn_started` that refers to what others spell out."""
    whole = TurnStarted.json_schema()
    kept = {key: whole["properties"][key] for key in whole["required"] if key not in IN_THE_OPENING}
    opening = {
        "description": "What all turns of the agent begin with, or the tick whose journal has it.",
        "type": ["object", "integer"],
    }
    situation = {
        "description": "The last message: lines of text, or the ticks and numbers of lines in turn.",
        "type": "array",
        "items": {"type": ["string", "array"]},
    }
    return object_of({**kept, "opening": opening, "situation": situation})


class SpelledOut:
    """What the journal of one tick spells out: its long lines in order, and the openings by turn key."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.openings: dict[str, Json] = {}

    def take(self, plain: Json) -> None:
        """Take what one `turn_started` spells out."""
        opening, situation = plain.get("opening"), plain.get("situation")
        if isinstance(opening, dict):
            self.openings[_key_of(plain)] = opening
        for part in situation if isinstance(situation, list) else ():
            if isinstance(part, str):
                self.lines += _long_lines(part)


class PromptReader:
    """Puts together again what turns of one tick started from.

    `elsewhere` says what the journal of another tick spells out; so much is kept that ticks that are read one
    after another need no journal twice.
    """

    def __init__(self, elsewhere: Callable[[int], SpelledOut]) -> None:
        self._elsewhere = elsewhere
        self._kept: OrderedDict[int, SpelledOut] = OrderedDict()

    def fetch(self, plain: Json, tick: int, here: SpelledOut) -> Json:
        """Return what a `turn_started` of this tick refers to: the fields `IN_THE_OPENING`, the whole prompt.

        Raises `NoPrompt` when it is not there. `here` is what the journal of its tick spells out.
        """
        try:
            opening = plain["opening"]
            if isinstance(opening, int):
                opening = self._at(opening, tick, here).openings.get(_key_of(plain))
                if opening is None:
                    raise _missing(plain["opening"])
            text = "\n".join(self._lines(plain["situation"], tick, here))
            prompt = [*opening["prompt"], {"role": "user", "content": text}]
            # "loops" is of later versions than 0.2.0, "form" of turns that are not asked for the contract.
            absent = {"loops", "form"} - opening.keys()
            fields = {key: opening[key] for key in IN_THE_OPENING if key not in absent}
            return {**fields, "prompt": prompt}
        except (KeyError, TypeError) as error:  # nobody's record
            raise NoPrompt(f"{type(error).__name__} in what it refers to") from error

    def _lines(self, situation: list[Part], tick: int, here: SpelledOut) -> Iterator[str]:
        room = LONGEST_LINE_BYTES
        for part in situation:
            if isinstance(part, str):
                yield part
                continue
            for at, number in zip(part[::2], part[1::2], strict=False):
                lines = self._at(at, tick, here).lines
                if not 0 <= number < len(lines):
                    raise _missing(at)
                # A place is short and a line may be long: a small record could stand for more text than
                # memory holds.
                if (room := room - len(lines[number])) < 0:
                    raise NoPrompt("it is too long to be a prompt")
                yield lines[number]

    def _at(self, at: int, tick: int, here: SpelledOut) -> SpelledOut:
        if at == tick:
            return here
        # Segments are removed whole once they are old, so nothing may depend on another one.
        if not tick - tick % TICKS_PER_SEGMENT <= at < tick:
            raise NoPrompt(f"it refers to tick {at}, which is not before it in its segment")
        if at not in self._kept:
            if len(self._kept) >= TICKS_PER_SEGMENT:
                self._kept.popitem(last=False)
            self._kept[at] = self._elsewhere(at)
        return self._kept[at]


def _missing(tick: int) -> NoPrompt:
    return NoPrompt(f"what it showed stands in {paths.journal_file(tick)}, which is gone or damaged")


class PromptWriter:
    """Knows what this engine's journals of a segment spell out, so that the next refers to it."""

    def __init__(self) -> None:
        self._segment = -1
        self._places: dict[str, tuple[int, int]] = {}
        self._openings: dict[str, tuple[bytes, int]] = {}

    def opening(self, tick: int, key: str, written: bytes) -> bytes:
        """Return the opening of a turn as the journal of a tick has it, as JSON; `written` is all of it.

        Each number of an agent's turns has openings of its own: one journal may spell out several.
        """
        self._begin(tick)
        known, at = self._openings.get(key, (b"", -1))
        return b"%d" % at if known == written else written

    def situation(self, tick: int, lines: list[str]) -> tuple[list[Part], list[str]]:
        """Return how the lines of a message stand in the journal, and the long ones that it spells out."""
        self._begin(tick)
        place_of = self._places.get
        parts: list[Part] = []
        new: list[str] = []
        places: list[int] = []
        spelled_out: list[str] = []
        for line in lines:
            if place := place_of(line):
                if spelled_out:
                    parts.append("\n".join(spelled_out))
                    spelled_out = []
                places += place
                continue
            if places:
                parts.append(places)
                places = []
            spelled_out.append(line)
            if len(line) >= SHORTEST_LINE:
                new += _long_lines(line)
        return [*parts, places or "\n".join(spelled_out)], new

    def note(self, tick: int, key: str, opening: bytes, count: int, new: list[str]) -> None:
        """Take note of what a `turn_started` that has been written spells out."""
        if self._openings.get(key, (b"", -1))[0] != opening:
            self._openings[key] = opening, tick
        if len(self._places) + len(new) > LINES_REMEMBERED:
            self._places.clear()
        for number, line in enumerate(new, count):
            self._places[line] = tick, number

    def _begin(self, tick: int) -> None:
        segment = tick // TICKS_PER_SEGMENT
        if segment != self._segment:
            self._segment = segment
            self._places.clear()
            self._openings.clear()


def _key_of(plain: Json) -> str:
    """Return the key of the turn that a `turn_started` begins."""
    turn = plain.get("turn", 0)
    return turn_key(str(plain.get("agent")), turn if isinstance(turn, int) else 0)


def _long_lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if len(line) >= SHORTEST_LINE]
