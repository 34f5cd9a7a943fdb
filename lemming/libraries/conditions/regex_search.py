"""Regular expressions from untrusted authors, in Python's syntax, for search only.

An automaton reads each letter once, for every expression: the time is proportional to the length of the text.
An expression that needs more work is refused for this text.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from lemming.kernel.base.name_patterns import InvalidPattern
from lemming.libraries.conditions.regex_compiler import (
    ASK,
    CHOOSE,
    FAIL,
    FOUND,
    READ,
    RegexProgram,
    Step,
    compile_program,
)

BASE_STEP_BUDGET = 500_000
STEPS_PER_LETTER = 8

_EDGE, _BREAK, _LAST_BREAK, _WORD, _ASCII_WORD = 1, 2, 4, 8, 16
"""Assertions about the letter on one side of a position."""


class SearchTooCostly(InvalidPattern):
    """The expression needs more steps than permitted for a text of this length."""


class LinearRegex:
    """A regular expression with linear time; safe to share between threads."""

    def __init__(self, pattern: str) -> None:
        """Compile the pattern. Raises `InvalidPattern` for an invalid or unsupported pattern."""
        self.pattern = pattern
        compiled = compile_program(pattern)
        self._search, self._forwards = (_search_program(compiled), _search_program(_require_nonempty_match(compiled)))
        self._backwards = compile_program(pattern, backwards=True)

    def search(self, text: str) -> bool:
        """Return True if the expression matches in a text, as `re.search` would. Raises `SearchTooCostly`."""
        matcher = _Matcher(self._search, text, _StepBudget(text))
        return next(matcher.iter_ends(0), None) is not None

    def sub(self, text: str, replacement: str) -> str:
        """Return a text with every nonempty match replaced, as `re.sub` would. Raises `SearchTooCostly`."""
        budget = _StepBudget(text)
        forwards, backwards = _Matcher(self._forwards, text, budget), _Matcher(self._backwards, text, budget)
        parts, position = list[str](), 0
        while (end := max(forwards.iter_ends(position), default=None)) is not None:
            start = min(backwards.iter_starts(end, position))
            parts += [text[position:start], replacement]
            position = end
        return "".join([*parts, text[position:]]) if parts else text


@lru_cache(maxsize=512)
def compile_regex(pattern: str) -> LinearRegex:
    """Return a compiled regular expression.

    Raises `InvalidPattern` with the reason for an invalid or unsupported pattern.

    >>> compile_regex("(a+)+$").search("a" * 5000 + "b"), compile_regex("n[0-9]+").sub("n12 m3", "?")
    (False, '? m3')
    """
    return LinearRegex(pattern)


def _search_program(program: RegexProgram) -> RegexProgram:
    """Return a program that starts at each letter, earliest first."""
    loop = len(program.steps)
    any_letter = len(program.letters)
    steps = (*program.steps, (CHOOSE, (program.start, loop + 1)), (READ, any_letter, loop))
    return RegexProgram(steps, loop, (*program.letters, lambda _: True))


def _require_nonempty_match(program: RegexProgram) -> RegexProgram:
    """Return a program without empty matches: one copy of the program runs before the first letter."""
    count = len(program.steps)

    def shift_targets(step: Step, by: int, by_reading: int) -> Step:
        match step:
            case (kind, several) if kind == CHOOSE and isinstance(several, tuple):
                return (CHOOSE, tuple(target + by for target in several))
            case (kind, operand, int(follows)):
                return (kind, operand, follows + (by_reading if kind == READ else by))
        return step

    steps_before = [(FAIL,) if step[0] == FOUND else shift_targets(step, 0, count) for step in program.steps]
    steps_after = [shift_targets(step, count, count) for step in program.steps]
    return RegexProgram((*steps_before, *steps_after), program.start, program.letters)


class _StepBudget:
    """Remaining step budget of a search.

    Each search has a new budget, so that the result is the same everywhere.
    """

    def __init__(self, text: str) -> None:
        self._remaining = BASE_STEP_BUDGET + STEPS_PER_LETTER * len(text)
        self.letters = sorted({*text})

    def spend(self, count: int) -> None:
        self._remaining -= count
        if self._remaining < 0:
            raise SearchTooCostly("it takes too long on this text")


class _NfaState(NamedTuple):
    """State of the automaton: the steps, likeliest first, and the letter class behind."""

    steps: tuple[int, ...]
    behind: int


class _DfaState:
    """An automaton state with known transitions: the next state, and True for a match."""

    __slots__ = ("moves", "nfa_state")

    def __init__(self, nfa_state: _NfaState) -> None:
        self.nfa_state = nfa_state
        self.moves: dict[int, tuple[_DfaState, bool]] = {}


class _Matcher:
    """A program applied to a text."""

    def __init__(self, program: RegexProgram, text: str, budget: _StepBudget) -> None:
        self._program, self._text, self._budget = program, text, budget
        self._states: dict[_NfaState, _DfaState] = {}
        budget.spend(len(budget.letters) * len(program.letters) // 4)
        # Letters that no test of the program tells apart are one kind; 0 is the end of the text.
        sides = [_EDGE]
        reads: list[tuple[bool, ...]] = [()]
        kinds: dict[tuple[int, tuple[bool, ...]], int] = {}
        self._kind: dict[str, int] = {}
        for letter in (*budget.letters, "\n"):
            fits = tuple(test(letter) for test in program.letters)
            side = _boundary_class(letter)
            for variant in (side, side | _LAST_BREAK) if side & _BREAK else (side,):
                if (variant, fits) not in kinds:
                    kinds[variant, fits] = len(sides)
                    sides.append(variant)
                    reads.append(fits)
            self._kind[letter] = kinds[side, fits]
            if side & _BREAK:
                self._last_break = kinds[side | _LAST_BREAK, fits]
        self._sides, self._reads = sides, reads

    def _letter_class(self, position: int) -> int:
        if not 0 <= position < len(self._text):
            return 0
        letter = self._text[position]
        return self._last_break if letter == "\n" and position == len(self._text) - 1 else self._kind[letter]

    def iter_ends(self, position: int) -> Iterator[int]:
        """Yield the possible ends of the first match from a position on, the right end last."""
        self._budget.spend(1)
        return self._iter_matches(range(position, len(self._text) + 1), is_first=True)

    def iter_starts(self, position: int, first: int) -> Iterator[int]:
        """Yield the possible starts of a match that ends at a position, for a backwards program."""
        return self._iter_matches(range(position, first - 1, -1), is_first=False)

    def _iter_matches(self, positions: range, *, is_first: bool) -> Iterator[int]:
        """Yield the positions of matches; forwards with `is_first`."""
        behind, ahead = (-1, 0) if is_first else (0, -1)
        state = self._get_state((self._program.start,), self._sides[self._letter_class(positions.start + behind)])
        for position in positions:
            kind = self._letter_class(position + ahead)
            move = state.moves.get(kind) or self._next_state(state, kind, is_first=is_first)
            self._budget.spend(1)
            state = move[0]
            if move[1]:
                yield position
            if not state.nfa_state.steps:
                return

    def _get_state(self, steps: tuple[int, ...], behind: int) -> _DfaState:
        nfa_state = _NfaState(steps, behind)
        return self._states.setdefault(nfa_state, _DfaState(nfa_state))

    def _next_state(self, state: _DfaState, kind: int, *, is_first: bool) -> tuple[_DfaState, bool]:
        """Return the next state after a letter, and True for a match before the letter.

        `is_first`: read forwards, and ignore branches less likely than a match.
        """
        behind, ahead = state.nfa_state.behind, self._sides[kind]
        sides = (behind, ahead) if is_first else (ahead, behind)
        follows: dict[int, None] = {}
        visited: set[int] = set()
        pending, is_match = [*reversed(state.nfa_state.steps)], False
        while pending:
            step_index = pending.pop()
            if step_index in visited:
                continue
            visited.add(step_index)
            step = self._program.steps[step_index]
            if step[0] == CHOOSE:
                pending += reversed(step[1])
            elif step[0] == ASK and _assertion_holds(step[1], *sides):
                pending.append(step[2])
            elif step[0] == READ and kind and self._reads[kind][step[1]]:
                follows[step[2]] = None
            elif step[0] == FOUND:
                is_match = True
                if is_first:
                    break
        self._budget.spend(2 * len(visited) + len(pending))
        move = self._get_state(tuple(follows), ahead), is_match
        state.moves[kind] = move
        return move


def _boundary_class(letter: str) -> int:
    is_word = letter.isalnum() or letter == "_"
    ascii_word = _ASCII_WORD if is_word and letter.isascii() else 0
    return (_BREAK if letter == "\n" else 0) | (_WORD if is_word else 0) | ascii_word


def _assertion_holds(assertion: str, behind: int, ahead: int) -> bool:
    """Return True if an assertion is true between two letter classes."""
    match assertion:
        case "begins":
            return bool(behind & _EDGE)
        case "ends":
            return bool(ahead & _EDGE)
        case "ends or last line break":
            return bool(ahead & (_EDGE | _LAST_BREAK))
        case "line begins":
            return bool(behind & (_EDGE | _BREAK))
        case "line ends":
            return bool(ahead & (_EDGE | _BREAK))
    word_class = _ASCII_WORD if assertion.endswith("ASCII word") else _WORD
    return (bool(behind & word_class) != bool(ahead & word_class)) != assertion.startswith("no ")
