"""A regular expression of Python's as a program for an automaton: what it reads, chooses and asks of a place.

Python's own parser reads it, and Python's own engine says which single letters a class holds, so that both
mean what they mean everywhere. What no automaton can do is refused: looking around, references back, groups
that give nothing back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from re import _compiler, _constants, _parser  # type: ignore[attr-defined]
from typing import Any

from lemming.kernel.base.patterns import NoExpression

MOST_STEPS = 3000
LONGEST = 4000

READ, CHOOSE, ASK, FOUND, FAIL = range(5)
Step = tuple[Any, ...]
"""(READ, test, next), (CHOOSE, (next, ...)) the likelier first, (ASK, what, next), (FOUND,) or (FAIL,)."""

Letter = Callable[[str], bool]
_REFUSED = {
    "ASSERT": "it looks ahead or behind: (?=, (?!, (?<= and (?<! are not searched for",
    "ASSERT_NOT": "it looks ahead or behind: (?=, (?!, (?<= and (?<! are not searched for",
    "GROUPREF": "it refers back to a group",
    "GROUPREF_IGNORE": "it refers back to a group",
    "GROUPREF_EXISTS": "it asks whether a group was found",
    "ATOMIC_GROUP": "it has a group that gives nothing back: (?>",
    "POSSESSIVE_REPEAT": "it has a repetition that gives nothing back, such as *+",
}


@dataclass(frozen=True)
class Program:
    """The steps of an expression, where they begin, and the tests of letters that they name."""

    steps: tuple[Step, ...]
    start: int
    letters: tuple[Letter, ...]


def program_of(pattern: str, *, backwards: bool = False) -> Program:
    """Return the program of an expression; `backwards`: it reads a text from its end.

    Raises `NoExpression` for what is none, or asks for more than an automaton can do.
    """
    if len(pattern) > LONGEST:
        raise NoExpression(f"it is longer than {LONGEST} characters")
    try:
        parsed = _parser.parse(pattern)
        made = _Made(backwards)
        end = made.add((FOUND,))
        start = made.sequence(parsed.data, parsed.state.flags, end)
    except (re.error, OverflowError) as error:
        raise NoExpression(str(error)) from None
    except RecursionError:
        raise NoExpression("its groups are too deep") from None
    return Program(tuple(made.steps), start, tuple(made.letters))


@dataclass
class _Made:
    """A program in the making, from its end: each part is made with the number of what follows it."""

    backwards: bool
    steps: list[Step] = field(default_factory=list)
    letters: list[Letter] = field(default_factory=list)
    _known: dict[str, int] = field(default_factory=dict)

    def add(self, step: Step) -> int:
        if len(self.steps) >= MOST_STEPS:
            raise NoExpression(f"it comes to more than {MOST_STEPS} steps: its repetitions multiply")
        self.steps.append(step)
        return len(self.steps) - 1

    def sequence(self, nodes: Sequence[Any], flags: int, follows: int) -> int:
        for node in nodes if self.backwards else reversed(nodes):
            follows = self._part(node, flags, follows)
        return follows

    def _part(self, node: Any, flags: int, follows: int) -> int:
        kind, told = str(node[0]), node[1]
        match kind:
            case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN":
                return self.add((READ, self._letter(node, flags), follows))
            case "BRANCH":
                return self.add((CHOOSE, tuple(self.sequence(it, flags, follows) for it in told[1])))
            case "SUBPATTERN":
                _, added, taken, inside = told
                return self.sequence(inside, _compiler._combine_flags(flags, added, taken), follows)
            case "MAX_REPEAT" | "MIN_REPEAT":
                return self._repeat(told, flags, follows, is_greedy=kind == "MAX_REPEAT")
            case "AT":
                return self.add((ASK, _asked(str(told), flags), follows))
        raise NoExpression(_REFUSED.get(kind, f"what it says is not known here: {kind.lower()}"))

    def _repeat(self, told: Any, flags: int, follows: int, *, is_greedy: bool) -> int:
        least, most, inside = told

        def chosen(again: int, on: int) -> Step:
            return (CHOOSE, (again, on) if is_greedy else (on, again))

        if most is _constants.MAXREPEAT:
            loop = self.add((FAIL,))
            self.steps[loop] = chosen(self.sequence(inside, flags, loop), follows)
            at = loop
        else:
            at = follows
            for _ in range(most - least):
                at = self.add(chosen(self.sequence(inside, flags, at), follows))
        for _ in range(least):
            at = self.sequence(inside, flags, at)
        return at

    def _letter(self, node: Any, flags: int) -> int:
        """Return the number of the test of a single letter."""
        key = f"{flags} {node!r}"
        if key not in self._known:
            state = _parser.State()
            state.flags = flags
            one = _compiler.compile(_parser.SubPattern(state, [node]), flags)
            self._known[key] = len(self.letters)
            self.letters.append(lambda letter: one.fullmatch(letter) is not None)
        return self._known[key]


def _asked(kind: str, flags: int) -> str:
    """Return what is asked of a place between two letters, the flags considered."""
    is_of_lines = bool(flags & re.MULTILINE)
    match kind:
        case "AT_BEGINNING":
            return "line begins" if is_of_lines else "begins"
        case "AT_END":
            return "line ends" if is_of_lines else "ends or last line break"
        case "AT_BEGINNING_STRING":
            return "begins"
        case "AT_END_STRING":
            return "ends"
        case "AT_BOUNDARY" | "AT_NON_BOUNDARY":
            which = "ASCII word" if flags & re.ASCII else "word"
            return which if kind == "AT_BOUNDARY" else f"no {which}"
    raise NoExpression(f"what it says is not known here: {kind.lower()}")
