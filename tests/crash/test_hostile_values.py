"""Hostile values wherever the engine reads what others wrote: nobody but their reader is stopped.

Each case follows from its seed alone. A failing one prints it: `LEMMING_FUZZ_SEED=7 pytest FILE -k entries`
runs that case again. `make crash` goes on with further seeds, for `LEMMING_FUZZ_SECONDS` a kind.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, NamedTuple

import pytest
from hostile_org import (
    BROKEN,
    OTHERS_SCRIPT,
    VALUES,
    VICTIM,
    entry_text,
    hostile_calls,
    in_json,
    make_hostile_org,
    payload_keys,
    tool_arguments,
    with_hostile_value,
)
from sampling import EVERYTHING

from lemming.cli import run
from lemming.engine import run_once
from lemming.kernel.base.errors import ConfigError, LemmingError
from lemming.kernel.files import fs
from lemming.kernel.journal.turn_report import TickReport
from lemming.kernel.org.config import load_config
from lemming.testing import FrozenClock, say, write_script

SEED = os.environ.get("LEMMING_FUZZ_SEED", "")
SECONDS = float(os.environ.get("LEMMING_FUZZ_SECONDS", "60" if EVERYTHING else "0"))
A_SAMPLE = 8
AT_MOST_S = 60
"""Within this a case must have ended, or it counts as one that hangs."""
LOOKS = ("status", "requests", "inbox human", "inbox ada", "findings", "doctor", "validate", "approvals",
         "agents", "tick", "why ada", "plan", "cost", "logs", "waiting", "check")  # fmt: skip
LEANS_ON = {"planner": ("bob", "human"), VICTIM: ("bob",)}
"""Whose trouble is another's as well: a plan waits for whom it asked and who asked it, a team for its own."""


class Broken(NamedTuple):
    """What was made hostile: whose it is (empty: everybody's), in which file, and how."""

    whose: str
    file: str
    how: str


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_hostile_org(tmp_path_factory.mktemp("sound") / "org")


@pytest.fixture(scope="module")
def as_ever(sound: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What each agent does in the next tick where nothing is hostile."""
    base = tmp_path_factory.mktemp("ever") / "org"
    shutil.copytree(sound, base, symlinks=True)
    return what_was_done(run_once(base, clock=FrozenClock()))


def what_was_done(report: TickReport) -> dict[str, object]:
    return {turn.agent: (turn.status, turn.reason, len(turn.entries), turn.memory) for turn in report.turns}


# --- what is made hostile -----------------------------------------------------------------------


def entries(base: Path, random: Random) -> Broken:
    """An entry of the person's: a payload of hostile values, kinds, tags and moments."""
    chosen = random.sample(payload_keys(), random.randint(1, 6))
    payload: dict[str, Any] = {"text": "hi", "target": VICTIM, "conversation": "talk"}
    payload |= {key: random.choice(VALUES) for key in chosen}
    more = {random.choice(["tags", "created_at", "id", "tick", "agent"]): random.choice(VALUES)}
    kind = random.choice(["request", "request", "message", "response", "status", random.choice(VALUES)])
    file = "agents/human/outbox/00000002_fedcba987654.json"
    raw = entry_text(payload, kind, **(more if random.random() < 0.2 else {}))
    (base / file).write_bytes(raw)
    return Broken(VICTIM, file, raw[:3000].decode("utf-8", "replace"))


def calls(base: Path, random: Random) -> Broken:
    """Calls of tools that ship."""
    made = hostile_calls(random, tool_arguments(), 6)
    reply = in_json(say(VICTIM, tool_calls=made))
    write_script(base, [{"agent": VICTIM, "reply": reply}, *OTHERS_SCRIPT])
    return Broken(VICTIM, "config/answers.jsonl", repr(made)[:3000])


def values(base: Path, random: Random) -> Broken:
    """One value in one of the files."""
    file = random.choice(sorted(it for it in files_of(base) if it.endswith((".json", ".jsonl"))))
    raw = with_hostile_value((base / file).read_bytes(), random)
    (base / file).write_bytes(raw)
    return Broken(owner_of(file), file, raw[:3000].decode("utf-8", "replace"))


def files(base: Path, random: Random) -> Broken:
    """One of the files, or of the folders, as a whole."""
    return one_broken(base, random.choice(places_in(base)), random.choice(sorted(BROKEN)))


def one_broken(base: Path, file: str, how: str) -> Broken:
    BROKEN[how](base / file)
    return Broken(owner_of(file), file, how)


KINDS: tuple[Callable[[Path, Random], Broken], ...] = (entries, calls, values, files)


def files_of(base: Path) -> list[str]:
    found = (it.relative_to(base) for it in base.rglob("*") if it.is_file())
    return [str(it) for it in found if it.parts[0] != ".lemming" and it.name != "answers.jsonl"]


def places_in(base: Path) -> list[str]:
    """Return all files, and the folders that they are in."""
    found = files_of(base)
    return sorted({*found, *(str(Path(it).parent) for it in found)} - {".", "agents"})


def owner_of(file: str) -> str:
    parts = file.split("/")
    return parts[1] if parts[0] == "agents" and len(parts) > 1 else ""


# --- what must hold -----------------------------------------------------------------------------


def tried(
    sound: Path, base: Path, as_ever: dict[str, object], make: Callable[[Path], Broken], look: str, again: str
) -> None:
    """Make one thing hostile in a copy, and hold what comes of it against what must hold."""
    shutil.copytree(sound, base, symlinks=True)
    broken = make(base)
    try:
        with ended_within(AT_MOST_S):
            check(base, as_ever, broken, look)
            if not broken.whose and (sound / broken.file).is_file():
                BROKEN["gone"](base / broken.file)
                shutil.copy(sound / broken.file, base / broken.file)
                run_once(base, clock=FrozenClock())  # mended, it goes on
    except BaseException as error:
        error.add_note(f"{again}\n{broken.whose or 'all'}: {broken.file}: {broken.how}")
        raise
    finally:
        shutil.rmtree(base)


def check(base: Path, as_ever: dict[str, object], broken: Broken, look: str) -> None:
    before = {file: (base / file).read_bytes() for file in outboxes(base)}
    if broken.whose:
        done = what_was_done(run_once(base, clock=FrozenClock()))
        again = what_was_done(run_once(base, clock=FrozenClock()))
        for name, was in as_ever.items():
            if name != broken.whose and broken.whose not in LEANS_ON.get(name, ()):
                assert (name, done.get(name)) == (name, was)
                assert name in again
    else:
        with contextlib.suppress(LemmingError):  # it says what is wrong, and nothing else leaves the engine
            run_once(base, clock=FrozenClock())
    assert run(["-C", str(base), *look.split()]) != 70, look
    for file, raw in before.items():
        assert (base / file).read_bytes() == raw, f"{file} is another"


def outboxes(base: Path) -> list[str]:
    found = (path for path in base.glob("agents/*/outbox/*.json") if path.is_file() and not path.is_symlink())
    return [str(path.relative_to(base)) for path in found]


@contextlib.contextmanager
def ended_within(limit_s: int) -> Iterator[None]:
    def late(_: int, __: FrameType | None) -> None:
        raise AssertionError(f"it takes longer than {limit_s} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(limit_s)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def seeds() -> Iterator[int]:
    """Yield the seed that was asked for; else those of a sample, then as many as there is time for."""
    if SEED:
        yield int(SEED)
        return
    yield from range(A_SAMPLE)
    until, seed = time.monotonic() + SECONDS, int(time.time()) * 1000
    while time.monotonic() < until:
        yield (seed := seed + 1)


@pytest.mark.sample(2)
@pytest.mark.crash
@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_what_is_hostile_stops_nobody_but_its_reader(
    sound: Path, as_ever: dict[str, object], tmp_path: Path, make: Callable[[Path, Random], Broken]
) -> None:
    for seed in seeds():
        random = Random(f"{make.__name__} {seed}")
        look, again = random.choice(LOOKS), f"LEMMING_FUZZ_SEED={seed} pytest -k {make.__name__} {__file__}"
        tried(sound, tmp_path / "org", as_ever, partial(make, random=random), look, again)


def test_keys_of_payloads_are_all_that_the_documentation_names() -> None:
    keys = {*payload_keys()}
    assert {"reply_to", "budget", "within", "spent", "files", "body", "vouches_for", "binds", "show"} <= keys
    assert len(keys) >= 52


@pytest.mark.crash
def test_one_broken_thing_stops_nobody_else(sound: Path, as_ever: dict[str, object], tmp_path: Path) -> None:
    wanted = [(place, how) for place in places_in(sound) if owner_of(place) for how in sorted(BROKEN)]
    assert len(wanted) > 200
    for number, (place, how) in enumerate(wanted if EVERYTHING else wanted[:: len(wanted) // A_SAMPLE]):
        make, look = partial(one_broken, file=place, how=how), LOOKS[number % len(LOOKS)]
        tried(sound, tmp_path / "org", as_ever, make, look, "one broken thing")


@pytest.mark.parametrize("file", ["org.json", "models.json", "credits.json"])
@pytest.mark.parametrize("text", ['"x"', "[]", "[1]", "9", "null", "true", "", "{", '{"a": 1}', '{"a": []}'])
def test_settings_that_are_something_else_are_refused_by_their_name(tmp_path: Path, file: str, text: str) -> None:
    fs.write_atomic(tmp_path, f"config/{file}", text.encode())
    with pytest.raises(ConfigError, match=f"config/{file}"):
        load_config(tmp_path)
