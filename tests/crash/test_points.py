"""Every moment at which the world could end: the next run comes to the files of a run in peace.

Byte for byte, over a corpus of organisations, and no call is paid twice beyond what docs/durability.md says.
`make crash` tries every point of every trial; the ordinary run tries some of each kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from afterwards import Over, finish
from bill import Bill
from corpus import CASES
from fault_injection import End
from peace import ideal
from results import Tally, tried
from sampling import EVERYTHING
from trial import LOOKS_STRIDE, sample, survives, survives_error, survives_refused_look, survives_twice

from lemming.kernel.journal.journal_file import Durability

pytestmark = pytest.mark.crash

SEEDS = range(3) if EVERYTHING else range(1)
LABELS: dict[End, str] = {
    "kill": "killed",
    "torn": "killed half-way through a write",
    "strict": "power lost, strict",
    "names": "power lost, names survive",
    "random": "power lost, random",
    "blocks": "power lost, any blocks",
}


@dataclass(frozen=True)
class Trial:
    """One way for the world to end, in one organisation."""

    label: str
    case: str
    tally: Callable[[], Tally]

    def __str__(self) -> str:
        return f"{self.case}: {self.label}"


def ends(end: End, durability: Durability) -> list[Trial]:
    def tally(name: str) -> Tally:
        tallies = (
            survives(name, end, durability, sample(name, end, durability), seed=seed)
            for seed in (SEEDS if end in ("random", "blocks") else [0])
        )
        return sum(tallies, Tally())

    label = f"{LABELS[end]}, {durability}"
    return [Trial(label, case.name, lambda name=case.name: tally(name)) for case in CASES]  # type: ignore[misc]


def errors(fault: str) -> list[Trial]:
    *how, error = fault.split()
    manner = {"": "once", "half": "half-way through a write", "lasting": "until repaired"}["".join(how)]
    return [
        Trial(
            f"{error} {manner}, turn",
            case.name,
            lambda name=case.name: survives_error(name, "turn", fault, sample(name, fault)),  # type: ignore[misc]
        )
        for case in CASES
    ]


def looks(error: str) -> list[Trial]:
    def tally(name: str) -> Tally:
        return survives_refused_look(name, "turn", error, sample(name, error, "look", every=LOOKS_STRIDE))

    label = f"{error} at a look, turn"
    return [Trial(label, case.name, lambda name=case.name: tally(name)) for case in CASES]  # type: ignore[misc]


def twice() -> list[Trial]:
    def tally(name: str) -> Tally:
        # All pairs would be thousands: every recovery point of every 37th end.
        every = 37 if EVERYTHING else 111
        return survives_twice(name, "turn", lambda number: number % every == 5, sample(name, "twice"))

    return [
        Trial("killed, and its recovery too, turn", case.name, lambda name=case.name: tally(name))  # type: ignore[misc]
        for case in CASES
    ]


ALL = [
    *ends("kill", "turn"),
    *ends("torn", "turn"),
    *ends("kill", "tick"),
    *ends("torn", "tick"),
    *ends("kill", "off"),
    *ends("torn", "off"),
    *twice(),
    *ends("strict", "turn"),
    *ends("names", "turn"),
    *ends("random", "turn"),
    *ends("strict", "tick"),
    *ends("names", "tick"),
    *ends("random", "tick"),
    *errors("ENOSPC"),
    *errors("half ENOSPC"),
    *errors("lasting ENOSPC"),
    *errors("EIO"),
    *errors("lasting EIO"),
    *errors("EMFILE"),
    *errors("lasting EMFILE"),
    *looks("EIO"),
    *looks("EMFILE"),
    *ends("blocks", "turn"),
    *ends("blocks", "tick"),
]
KINDS_EACH = 24
"""In each organisation one of so many kinds of end is tried, and each kind in one of so many of them."""


def is_chosen(number: int) -> bool:
    kind, case = divmod(number, len(CASES))
    return EVERYTHING or (kind + case) % KINDS_EACH == 0


NAMES = [case.name for case in CASES]
CHOSEN = [trial for number, trial in enumerate(ALL) if is_chosen(number)]
CHOSEN.sort(key=lambda trial: NAMES.index(trial.case))  # one after another in one process: see `afterwards`


@pytest.mark.sample(6)
@pytest.mark.parametrize("trial", CHOSEN, ids=str)
def test_whenever_the_world_ends_the_next_run_comes_to_the_same_files(trial: Trial) -> None:
    tally = tried(trial.case, trial.label, trial.tally)
    assert tally.points > 0
    assert not tally.problems, "\n".join(tally.problems[:5])


class ByTheSpoon(Over):
    """A disk that takes a few bytes at a time."""

    def write(self, descriptor: int, content: bytes) -> int:
        return super().write(descriptor, content[:9])


def test_a_disk_that_takes_a_few_bytes_at_a_time_gets_them_all() -> None:
    assert finish("tools", "turn", ideal("tools", "turn").start, Bill(), ByTheSpoon) == []
