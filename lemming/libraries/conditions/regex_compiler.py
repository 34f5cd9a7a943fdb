"""Python regular expressions as programs for an automaton.

Python's parser parses the expression, and Python's engine tests single letters, so that both have their usual
meaning. Features beyond an automaton are refused: lookaround, backreferences, possessive and atomic groups.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from re import _compiler, _constants, _parser  # type: ignore[attr-defined]
from typing import Any

from lemming.kernel.base.name_patterns import InvalidPattern

MAX_STEPS = 3000
MAX_PATTERN_CHARS = 4000

READ, CHOOSE, ASK, FOUND, FAIL = range(5)
Step = tuple[Any, ...]
"""(READ, test, next), (CHOOSE, (next, ...)) the likelier first, (ASK, assertion, next), (FOUND,) or
(FAIL,)."""

Letter = Callable[[str], bool]
_REFUSED = {
    "ASSERT": "look-ahead and look-behind ((?=, (?!, (?<= and (?<!) are not supported",
    "ASSERT_NOT": "look-ahead and look-behind ((?=, (?!, (?<= and (?<!) are not supported",
    "GROUPREF": "back references are not supported",
    "GROUPREF_IGNORE": "back references are not supported",
    "GROUPREF_EXISTS": "conditional groups are not supported",
    "ATOMIC_GROUP": "atomic groups (?> are not supported",
    "POSSESSIVE_REPEAT": "possessive repetitions such as *+ are not supported",
}


@dataclass(frozen=True)
class RegexProgram:
    """Steps of an expression, the first step, and the letter tests that the steps use."""

    steps: tuple[Step, ...]
    start: int
    letters: tuple[Letter, ...]


def compile_program(pattern: str, *, backwards: bool = False) -> RegexProgram:
    """Return the program of an expression. With `backwards`, the program reads a text from the end.

    Raises `InvalidPattern` for an invalid expression or an unsupported feature.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        raise InvalidPattern(f"the pattern must have at most {MAX_PATTERN_CHARS} characters")
    try:
        parsed = _parser.parse(pattern)
        builder = _ProgramBuilder(backwards)
        end = builder.add_step((FOUND,))
        start = builder.add_sequence(parsed.data, parsed.state.flags, end)
    except (re.error, OverflowError) as error:
        raise InvalidPattern(str(error)) from None
    except RecursionError:
        raise InvalidPattern("the groups are nested too deep") from None
    return RegexProgram(tuple(builder.steps), start, tuple(builder.letters))


@dataclass
class _ProgramBuilder:
    """Builder of a program, from the end: each part is built with the number of the next step."""

    backwards: bool
    steps: list[Step] = field(default_factory=list)
    letters: list[Letter] = field(default_factory=list)
    _letter_tests: dict[str, int] = field(default_factory=dict)

    def add_step(self, step: Step) -> int:
        if len(self.steps) >= MAX_STEPS:
            raise InvalidPattern(f"the pattern must have at most {MAX_STEPS} steps; nested repetitions multiply")
        self.steps.append(step)
        return len(self.steps) - 1

    def add_sequence(self, nodes: Sequence[Any], flags: int, follows: int) -> int:
        for node in nodes if self.backwards else reversed(nodes):
            follows = self._add_node(node, flags, follows)
        return follows

    def _add_node(self, node: Any, flags: int, follows: int) -> int:
        kind, operand = str(node[0]), node[1]
        match kind:
            case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN":
                return self.add_step((READ, self._letter_test(node, flags), follows))
            case "BRANCH":
                return self.add_step(
                    (CHOOSE, tuple(self.add_sequence(branch, flags, follows) for branch in operand[1]))
                )
            case "SUBPATTERN":
                _, added_flags, removed_flags, nodes = operand
                return self.add_sequence(nodes, _compiler._combine_flags(flags, added_flags, removed_flags), follows)
            case "MAX_REPEAT" | "MIN_REPEAT":
                return self._add_repeat(operand, flags, follows, is_greedy=kind == "MAX_REPEAT")
            case "AT":
                return self.add_step((ASK, _assertion_kind(str(operand), flags), follows))
        raise InvalidPattern(_REFUSED.get(kind, f"unsupported syntax: {kind.lower()}"))

    def _add_repeat(self, operand: Any, flags: int, follows: int, *, is_greedy: bool) -> int:
        min_count, max_count, nodes = operand

        def make_choice(repeat: int, leave: int) -> Step:
            return (CHOOSE, (repeat, leave) if is_greedy else (leave, repeat))

        if max_count is _constants.MAXREPEAT:
            loop = self.add_step((FAIL,))
            self.steps[loop] = make_choice(self.add_sequence(nodes, flags, loop), follows)
            entry = loop
        else:
            entry = follows
            for _ in range(max_count - min_count):
                entry = self.add_step(make_choice(self.add_sequence(nodes, flags, entry), follows))
        for _ in range(min_count):
            entry = self.add_sequence(nodes, flags, entry)
        return entry

    def _letter_test(self, node: Any, flags: int) -> int:
        """Return the number of the test for a single letter."""
        key = f"{flags} {node!r}"
        if key not in self._letter_tests:
            state = _parser.State()
            state.flags = flags
            letter_pattern = _compiler.compile(_parser.SubPattern(state, [node]), flags)
            self._letter_tests[key] = len(self.letters)
            self.letters.append(lambda letter: letter_pattern.fullmatch(letter) is not None)
        return self._letter_tests[key]


def _assertion_kind(kind: str, flags: int) -> str:
    """Return the kind of assertion between two letters, with the flags considered."""
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
    raise InvalidPattern(f"unsupported syntax: {kind.lower()}")
