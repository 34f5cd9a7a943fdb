"""Regular expressions that somebody else wrote, in Python's words: they are searched for here only.

An automaton reads each letter once, whatever the expression: none takes longer than in proportion to the
text's length. One that would need more room than that is refused for that text.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from lemming.capabilities.conditions.program import ASK, CHOOSE, FAIL, FOUND, READ, Program, Step, program_of
from lemming.kernel.base.patterns import NoExpression

MOST_WORK = 500_000
WORK_A_LETTER = 8

_EDGE, _BREAK, _LAST_BREAK, _WORD, _ASCII_WORD = 1, 2, 4, 8, 16
"""What a place is asked about the letter on one side of it."""


class TooMuchWork(NoExpression):
    """A search was given up: the expression asks for more than a text of this length may cost."""


class Expression:
    """A regular expression; safe to share between threads."""

    def __init__(self, pattern: str) -> None:
        """Raise `NoExpression` when it is none, or is one that is not searched for."""
        self.pattern = pattern
        plain = program_of(pattern)
        self._search, self._from_somewhere = _anywhere(plain), _anywhere(_not_empty(plain))
        self._backwards = program_of(pattern, backwards=True)

    def finds(self, text: str) -> bool:
        """Return whether it finds something in a text, as `re.search` would. Raises `TooMuchWork`."""
        run = _Run(self._search, text, _Work(text))
        return next(run.ends(0), None) is not None

    def replaced(self, text: str, by: str) -> str:
        """Return a text with what it finds replaced, but for places where it finds nothing: `re.sub`'s rest.

        Raises `TooMuchWork`.
        """
        work = _Work(text)
        forwards, backwards = _Run(self._from_somewhere, text, work), _Run(self._backwards, text, work)
        kept, at = list[str](), 0
        while (end := max(forwards.ends(at), default=None)) is not None:
            start = min(backwards.starts(end, at))
            kept += [text[at:start], by]
            at = end
        return "".join([*kept, text[at:]]) if kept else text


@lru_cache(maxsize=512)
def expression(pattern: str) -> Expression:
    """Return a regular expression; raise `NoExpression` that says why it is none, or is not searched for.

    >>> expression("(a+)+$").finds("a" * 5000 + "b"), expression("n[0-9]+").replaced("n12 m3", "?")
    (False, '? m3')
    """
    return Expression(pattern)


def _anywhere(program: Program) -> Program:
    """Return a program that begins at each letter, the first first."""
    loop = len(program.steps)
    any_letter = len(program.letters)
    steps = (*program.steps, (CHOOSE, (program.start, loop + 1)), (READ, any_letter, loop))
    return Program(steps, loop, (*program.letters, lambda _: True))


def _not_empty(program: Program) -> Program:
    """Return a program that has found something only after it has read something: one copy for before."""
    count = len(program.steps)

    def moved(step: Step, by: int, by_reading: int) -> Step:
        match step:
            case (kind, several) if kind == CHOOSE and isinstance(several, tuple):
                return (CHOOSE, tuple(each + by for each in several))
            case (kind, what, int(follows)):
                return (kind, what, follows + (by_reading if kind == READ else by))
        return step

    before = [(FAIL,) if step[0] == FOUND else moved(step, 0, count) for step in program.steps]
    after = [moved(step, count, count) for step in program.steps]
    return Program((*before, *after), program.start, program.letters)


class _Work:
    """How much a search may still cost. Each begins anew, so that it ends alike everywhere."""

    def __init__(self, text: str) -> None:
        self._left = MOST_WORK + WORK_A_LETTER * len(text)
        self.letters = sorted({*text})

    def take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise TooMuchWork("it takes too long on this text")


class _Place(NamedTuple):
    """Where an automaton can be: its steps, the likeliest first, and what is behind it."""

    steps: tuple[int, ...]
    behind: int


class _State:
    """A place, and where letters are known to lead from it: the next state, and whether it is found."""

    __slots__ = ("moves", "place")

    def __init__(self, place: _Place) -> None:
        self.place = place
        self.moves: dict[int, tuple[_State, bool]] = {}


class _Run:
    """A program on a text."""

    def __init__(self, program: Program, text: str, work: _Work) -> None:
        self._program, self._text, self._work = program, text, work
        self._states: dict[_Place, _State] = {}
        work.take(len(work.letters) * len(program.letters) // 4)
        # Letters that no test of the program tells apart are one kind; 0 is the end of the text.
        sides = [_EDGE]
        reads: list[tuple[bool, ...]] = [()]
        kinds: dict[tuple[int, tuple[bool, ...]], int] = {}
        self._kind: dict[str, int] = {}
        for letter in (*work.letters, "\n"):
            fits = tuple(test(letter) for test in program.letters)
            side = _side_of(letter)
            for each in (side, side | _LAST_BREAK) if side & _BREAK else (side,):
                if (each, fits) not in kinds:
                    kinds[each, fits] = len(sides)
                    sides.append(each)
                    reads.append(fits)
            self._kind[letter] = kinds[side, fits]
            if side & _BREAK:
                self._last_break = kinds[side | _LAST_BREAK, fits]
        self._sides, self._reads = sides, reads

    def _kind_at(self, at: int) -> int:
        if not 0 <= at < len(self._text):
            return 0
        letter = self._text[at]
        return self._last_break if letter == "\n" and at == len(self._text) - 1 else self._kind[letter]

    def ends(self, at: int) -> Iterator[int]:
        """Yield where the first that is found from a place on ends, the right one last."""
        self._work.take(1)
        return self._found(range(at, len(self._text) + 1), is_first=True)

    def starts(self, at: int, first: int) -> Iterator[int]:
        """Yield where what ends at a place can begin, for a program that reads backwards."""
        return self._found(range(at, first - 1, -1), is_first=False)

    def _found(self, places: range, *, is_first: bool) -> Iterator[int]:
        """Yield the places at which something is found, forwards with `is_first`."""
        behind, ahead = (-1, 0) if is_first else (0, -1)
        state = self._state((self._program.start,), self._sides[self._kind_at(places.start + behind)])
        for here in places:
            kind = self._kind_at(here + ahead)
            move = state.moves.get(kind) or self._moved(state, kind, is_first=is_first)
            self._work.take(1)
            state = move[0]
            if move[1]:
                yield here
            if not state.place.steps:
                return

    def _state(self, steps: tuple[int, ...], behind: int) -> _State:
        place = _Place(steps, behind)
        return self._states.setdefault(place, _State(place))

    def _moved(self, state: _State, kind: int, *, is_first: bool) -> tuple[_State, bool]:
        """Return where a letter leads, and whether something is found before it.

        `is_first`: it is read forwards, and what is less likely than what is found does not count.
        """
        behind, ahead = state.place.behind, self._sides[kind]
        sides = (behind, ahead) if is_first else (ahead, behind)
        follows: dict[int, None] = {}
        seen: set[int] = set()
        left, is_found = [*reversed(state.place.steps)], False
        while left:
            at = left.pop()
            if at in seen:
                continue
            seen.add(at)
            step = self._program.steps[at]
            if step[0] == CHOOSE:
                left += reversed(step[1])
            elif step[0] == ASK and _holds(step[1], *sides):
                left.append(step[2])
            elif step[0] == READ and kind and self._reads[kind][step[1]]:
                follows[step[2]] = None
            elif step[0] == FOUND:
                is_found = True
                if is_first:
                    break
        self._work.take(2 * len(seen) + len(left))
        move = self._state(tuple(follows), ahead), is_found
        state.moves[kind] = move
        return move


def _side_of(letter: str) -> int:
    is_word = letter.isalnum() or letter == "_"
    ascii_word = _ASCII_WORD if is_word and letter.isascii() else 0
    return (_BREAK if letter == "\n" else 0) | (_WORD if is_word else 0) | ascii_word


def _holds(asked: str, before: int, after: int) -> bool:
    """Return whether what is asked of a place holds between two sides."""
    match asked:
        case "begins":
            return bool(before & _EDGE)
        case "ends":
            return bool(after & _EDGE)
        case "ends or last line break":
            return bool(after & (_EDGE | _LAST_BREAK))
        case "line begins":
            return bool(before & (_EDGE | _BREAK))
        case "line ends":
            return bool(after & (_EDGE | _BREAK))
    word = _ASCII_WORD if asked.endswith("ASCII word") else _WORD
    return (bool(before & word) != bool(after & word)) != asked.startswith("no ")
