"""Storage of prompts without repetition: prompts share most lines, and the turns of an agent share a prefix.

In a written `turn_started`, `opening` holds the prefix shared by every turn of the agent, or the tick whose
journal holds the prefix. `situation` holds the last message line by line: text, or positions of lines an
earlier `turn_started` holds inline. A position is a tick and the number of a line among the long inline lines
of the tick's journal. Journals refer to each other only within one segment. Format: docs/formats.md,
"Journal".
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

from lemming.kernel.base import paths
from lemming.kernel.base.turn_numbers import turn_key
from lemming.kernel.files.descriptors import MAX_LINE_BYTES
from lemming.kernel.files.field_types import Json, Schema, object_schema
from lemming.kernel.journal.journal_records import TurnStarted
from lemming.kernel.journal.journal_segments import TICKS_PER_SEGMENT
from lemming.kernel.journal.record_parts import PREFIX_FIELDS

MIN_SHARED_LINE_CHARS = 64
"""Shorter lines are written in full: a reference would save next to nothing."""

MAX_REMEMBERED_LINES = 100_000  # bounds the memory; a forgotten part is written in full again
Part = str | list[int]
"""Lines of text, or references to lines: tick and number in turn."""


class MissingPromptPart(ValueError):
    """Raised if the text a `turn_started` refers to is missing; the message names the journal."""


def has_references(plain: Json) -> bool:
    """Return True if a line is a `turn_started` with references to other records."""
    return "situation" in plain and plain.get("type") == "turn_started"


def reference_schema() -> Schema:
    """Return the schema of a `turn_started` with references."""
    full_schema = TurnStarted.json_schema()
    properties = {key: full_schema["properties"][key] for key in full_schema["required"] if key not in PREFIX_FIELDS}
    prefix_schema = {
        "description": "What all turns of the agent begin with, or the tick whose journal has it.",
        "type": ["object", "integer"],
    }
    message_schema = {
        "description": "The last message: lines of text, or the ticks and numbers of lines in turn.",
        "type": "array",
        "items": {"type": ["string", "array"]},
    }
    return object_schema({**properties, "opening": prefix_schema, "situation": message_schema})


class InlineParts:
    """Inline parts in the journal of a tick: long lines in order, and prompt prefixes by turn key."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.prefixes: dict[str, Json] = {}

    def collect(self, start: Json) -> None:
        """Collect the inline parts of one `turn_started`."""
        prefix, message_parts = start.get("opening"), start.get("situation")
        if isinstance(prefix, dict):
            self.prefixes[_get_turn_key(start)] = prefix
        for part in message_parts if isinstance(message_parts, list) else ():
            if isinstance(part, str):
                self.lines += _long_lines(part)


class PromptReader:
    """Resolves references in the starts of turns of a tick.

    `load_parts` returns the inline parts of another tick's journal. A cache for one segment avoids reading a
    journal twice when ticks are read in sequence.
    """

    def __init__(self, load_parts: Callable[[int], InlineParts]) -> None:
        self._load_parts = load_parts
        self._cache: OrderedDict[int, InlineParts] = OrderedDict()

    def resolve_prompt(self, start: Json, tick: int, inline_parts: InlineParts) -> Json:
        """Return the fields `PREFIX_FIELDS` of a `turn_started`, with the whole prompt.

        Raises `MissingPromptPart` if a referenced part is missing. `inline_parts`: the inline parts of the
        tick's own journal.
        """
        try:
            prefix = start["opening"]
            if isinstance(prefix, int):
                prefix = self._parts_of_tick(prefix, tick, inline_parts).prefixes.get(_get_turn_key(start))
                if prefix is None:
                    raise _missing_error(start["opening"])
            text = "\n".join(self._resolve_lines(start["situation"], tick, inline_parts))
            prompt = [*prefix["prompt"], {"role": "user", "content": text}]
            # "loops" is of later versions than 0.2.0, "form" of turns that are not asked for the contract.
            absent = {"loops", "form"} - prefix.keys()
            fields = {key: prefix[key] for key in PREFIX_FIELDS if key not in absent}
            return {**fields, "prompt": prompt}
        except (KeyError, TypeError) as error:  # of no record
            raise MissingPromptPart(f"{type(error).__name__} in a referenced prompt part") from error

    def _resolve_lines(self, message_parts: list[Part], tick: int, inline_parts: InlineParts) -> Iterator[str]:
        remaining_bytes = MAX_LINE_BYTES
        for part in message_parts:
            if isinstance(part, str):
                yield part
                continue
            for part_tick, number in zip(part[::2], part[1::2], strict=False):
                lines = self._parts_of_tick(part_tick, tick, inline_parts).lines
                if not 0 <= number < len(lines):
                    raise _missing_error(part_tick)
                # References are short, lines may be long: a small record could expand to more than the memory.
                if (remaining_bytes := remaining_bytes - len(lines[number])) < 0:
                    raise MissingPromptPart("the prompt is too long")
                yield lines[number]

    def _parts_of_tick(self, part_tick: int, tick: int, inline_parts: InlineParts) -> InlineParts:
        if part_tick == tick:
            return inline_parts
        # Segments are removed whole once they are old, so nothing may depend on another one.
        if not tick - tick % TICKS_PER_SEGMENT <= part_tick < tick:
            raise MissingPromptPart(f"the prompt refers to tick {part_tick}, which is not earlier in its segment")
        if part_tick not in self._cache:
            if len(self._cache) >= TICKS_PER_SEGMENT:
                self._cache.popitem(last=False)
            self._cache[part_tick] = self._load_parts(part_tick)
        return self._cache[part_tick]


def _missing_error(tick: int) -> MissingPromptPart:
    return MissingPromptPart(f"the prompt's text is in {paths.journal_file(tick)}, which is missing or damaged")


class PromptWriter:
    """Tracks the inline parts of this engine's journals in a segment, to refer to them later."""

    def __init__(self) -> None:
        self._segment = -1
        self._positions: dict[str, tuple[int, int]] = {}
        self._prefixes: dict[str, tuple[bytes, int]] = {}

    def encode_prefix(self, tick: int, key: str, prefix: bytes) -> bytes:
        """Return the prefix of a turn as JSON for the journal: the prefix itself or a reference to a tick.

        Each turn number of an agent has its own prefix; one journal may hold several inline.
        """
        self._begin_segment(tick)
        stored_prefix, prefix_tick = self._prefixes.get(key, (b"", -1))
        return b"%d" % prefix_tick if stored_prefix == prefix else prefix

    def encode_message(self, tick: int, lines: list[str]) -> tuple[list[Part], list[str]]:
        """Return the parts of a message for the journal, and the long lines stored inline."""
        self._begin_segment(tick)
        get_position = self._positions.get
        parts: list[Part] = []
        new_lines: list[str] = []
        positions: list[int] = []
        inline_lines: list[str] = []
        for line in lines:
            if position := get_position(line):
                if inline_lines:
                    parts.append("\n".join(inline_lines))
                    inline_lines = []
                positions += position
                continue
            if positions:
                parts.append(positions)
                positions = []
            inline_lines.append(line)
            if len(line) >= MIN_SHARED_LINE_CHARS:
                new_lines += _long_lines(line)
        return [*parts, positions or "\n".join(inline_lines)], new_lines

    def record_inline(self, tick: int, key: str, prefix: bytes, first_number: int, new_lines: list[str]) -> None:
        """Record the inline parts of a written `turn_started`."""
        if self._prefixes.get(key, (b"", -1))[0] != prefix:
            self._prefixes[key] = prefix, tick
        if len(self._positions) + len(new_lines) > MAX_REMEMBERED_LINES:
            self._positions.clear()
        for number, line in enumerate(new_lines, first_number):
            self._positions[line] = tick, number

    def _begin_segment(self, tick: int) -> None:
        segment = tick // TICKS_PER_SEGMENT
        if segment != self._segment:
            self._segment = segment
            self._positions.clear()
            self._prefixes.clear()


def _get_turn_key(start: Json) -> str:
    """Return the key of the turn a `turn_started` belongs to."""
    turn = start.get("turn", 0)
    return turn_key(str(start.get("agent")), turn if isinstance(turn, int) else 0)


def _long_lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if len(line) >= MIN_SHARED_LINE_CHARS]
