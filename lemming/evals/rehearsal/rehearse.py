"""Recorded ticks again, in a fork, with a change: what would have been different, and what that costs.

The fork is as the organisation was before the first of the ticks, with resumes and settings as they are now,
and the change. What people and channels wrote comes in the same ticks. Nothing else is ever touched.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

from lemming.engine import run_opened
from lemming.evals.rehearsal.again import CallNotMade, NotAsked, Rehearsing
from lemming.evals.rehearsal.budget import Spending
from lemming.evals.rehearsal.compare import EntryDifference, differing_entries
from lemming.evals.rehearsal.questions import RecordedQuestions
from lemming.history.read import FileChange
from lemming.kernel.agents import agent_folders, decode_resume
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, LemmingError, UsageError
from lemming.kernel.base.jsontext import nearest, parse, pretty
from lemming.kernel.files import fs
from lemming.kernel.files.fields import Json
from lemming.kernel.journal.file import journal_ticks, prompts_in, read_journal
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.counter import load_tick
from lemming.kernel.tick.runtime import open_org
from lemming.timeline.fork import Setting, files_with, fork
from lemming.timeline.past import PastFiles, files_of, read_now
from lemming.timeline.record import RecordedTick, TurnRecord, read_tick
from lemming.timeline.replay.replay import give_up_again, say_again
from lemming.timeline.unkept import PastStates, UnkeptPast, change_of, past_states

MARK = ".lemming/rehearsal.json"
"""In a fork that a rehearsal made: of what it is one, so that it can be gone on with."""


@dataclass(frozen=True)
class Wanted:
    """What a rehearsal is to be: which ticks, what is set in them, and what it may do.

    `files`: files that people edit, by path, each with all that stands in it. `budget`: dollars, as
    `Spending` keeps them. `is_dry`, `makes_calls`: as in `Rehearsing`.
    """

    first: int
    last: int
    settings: tuple[Setting, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    budget: float | None = None
    is_dry: bool = False
    makes_calls: bool = False


@dataclass(frozen=True)
class EndDifference:
    """A turn that ended otherwise, or that one side only has: how it ended on both, and why."""

    tick: int
    agent: str
    before: str
    after: str


@dataclass(frozen=True)
class Rehearsed:
    """What came of a rehearsal, up to and with tick `last`: what differs from the record, and what it cost.

    `asked`: questions that were not in the record; `reused`: those that were. `stopped_by`: why it went no
    further than `last`. `whole`: in a dry run, what asking everything would cost. `remark`: how far what was
    there before can be believed.
    """

    first: int
    last: int
    entries: list[EntryDifference] = field(default_factory=list)
    ends: list[EndDifference] = field(default_factory=list)
    files: list[FileChange] = field(default_factory=list)
    asked: list[NotAsked] = field(default_factory=list)
    reused: int = 0
    not_made: list[CallNotMade] = field(default_factory=list)
    not_repeated: list[tuple[int, str]] = field(default_factory=list)
    spending: Spending = field(default_factory=Spending)
    whole: Spending = field(default_factory=Spending)
    scripted: list[str] = field(default_factory=list)
    stopped_by: LemmingError | None = None
    remark: str = ""

    @property
    def is_alike(self) -> bool:
        """Whether nothing differs from the record."""
        return not (self.entries or self.ends or self.files)

    @property
    def caveat(self) -> str:
        """Say whose answers say nothing, as a recording was asked something else; empty: nobody's."""
        if not self.scripted:
            return ""
        names = ", ".join(self.scripted[:8]) + (
            f" and {len(self.scripted) - 8} more" * (len(self.scripted) > 8)
        )
        return f"the model of {names} is a recording, which has no answer to another question: it cannot tell"

    @property
    def cannot_tell(self) -> str:
        """Say why nothing differing says nothing; empty: it does."""
        return self.caveat if self.is_alike else ""

    def as_json(self) -> Json:
        """Return the sums as JSON values; what differs is told one by one."""
        spent = self.spending
        return {
            "first": self.first,
            "last": self.last,
            "reused": self.reused,
            "asked": [question._asdict() for question in self.asked],
            "calls": spent.calls,
            "credits": round(spent.credits, 6),
            "cost_usd": float(spent.dollars) if spent.calls > spent.unpriced or not spent.calls else None,
            "cost_at_most_usd": float(spent.at_most) if not spent.unpriced else None,
            "unpriced_calls": spent.unpriced,
            "not_made": [call._asdict() for call in self.not_made],
            "not_repeated": [{"tick": tick, "agent": agent} for tick, agent in self.not_repeated],
            "ends": [asdict(end) for end in self.ends],
            "files": [asdict(file) for file in self.files],
            "cannot_tell": self.cannot_tell,
            "stopped_by": self.stopped_by.as_json() if self.stopped_by else None,
            "remark": self.remark,
        }


def recorded_span(base: OrgPath, ticks: range | None = None) -> range:
    """Return which of these ticks have been run; all that journals tell of without them.

    Raises `UsageError` when there are none.
    """
    told, done = journal_ticks(base), load_tick(base) - 1
    if not told or done < told[0]:
        raise UsageError("no tick has been run here", where=str(base), hint="`lemming run-once` runs one")
    wanted = ticks or range(_first_known(base, told[0]), done + 1)
    span = range(wanted.start or _first_known(base, told[0]), min(done + 1, wanted.stop))
    if not span:
        asked = f"tick {wanted.start}" if len(wanted) < 2 else f"ticks {wanted.start} to {wanted.stop - 1}"
        raise UsageError(f"{asked}: not run", hint=f"there are ticks {told[0]} to {done}")
    return span


def _first_known(base: OrgPath, first: int) -> int:
    """Return the first tick before which it is known how all was; older journals may be gone."""
    began = read_tick(base, first).started.values()
    return first + any(started.state["status"] for started in began)


def rehearse(
    base: OrgPath, folder: Path, wanted: Wanted, *, stop: threading.Event | None = None
) -> Rehearsed:
    """Run recorded ticks again in `folder`, with a change, and return what came out otherwise.

    A folder in which the same rehearsal was interrupted is gone on with: answers in its journals are not
    asked for again. Raises `UsageError` for settings and folders that do not fit; `DiskError`.
    """
    past = past_states(base)
    record = _Record(base, past.past if isinstance(past, UnkeptPast) else PastFiles(base))
    _prepare(past, folder, wanted)
    with open_org(folder, command="rehearse", stop=stop) as opened:
        runtime = Rehearsing(
            opened.org,
            opened.clock,
            stop=opened.stop,
            epoch=opened.epoch,
            spending=Spending(wanted.budget),
            is_dry=wanted.is_dry,
            makes_calls=wanted.makes_calls,
        )
        with closing(runtime.backends):
            lost = [*_run_ticks(runtime, record, range(load_tick(folder), wanted.last + 1))]
    done = load_tick(folder) - 1
    found = _compared(record, folder, range(wanted.first, done + 1))
    return Rehearsed(
        first=wanted.first,
        last=done,
        **found,
        asked=sorted(runtime.asked),
        reused=runtime.reused,
        not_made=sorted(runtime.not_made),
        not_repeated=lost,
        spending=runtime.spending,
        whole=runtime.whole,
        scripted=sorted(runtime.scripted),
        stopped_by=runtime.stopped_by,
        remark=past.remark,
    )


class _Record:
    """The record that is gone by: the ticks of an organisation, and what came into it in each."""

    def __init__(self, base: OrgPath, past: PastFiles) -> None:
        self.base, self.past, self._prompts = Path(base), past, prompts_in(base)
        self._config = load_config(base)

    def tick(self, tick: int) -> RecordedTick:
        """Return a tick; one without records had no turns."""
        return RecordedTick(tick, read_journal(self.base, tick, prompts=self._prompts))

    def questions(self, tick: int) -> RecordedQuestions:
        """Return what was asked in a tick, of models as the settings name them now."""
        return RecordedQuestions(self.tick(tick), self.base, self._config)

    def at(self, tick: int) -> str:
        """Return the clock's newest reading up to a tick."""
        told = self.past.told.ticks
        return next((told[at].at for at in reversed(told) if at <= tick), told[min(told)].at)

    def deliver(self, folder: Path, tick: int) -> None:
        """Put what people and channels wrote before a tick into its place, where nothing stands."""
        for file in self.past.arrivals.files.get(tick, ()):
            if not (folder / file).exists():
                content = self.past.arrivals.texts.get(file) or read_now(self.base, file)
                if content is not None:
                    fs.publish(folder, file, content)


def _prepare(past: PastStates, folder: Path, wanted: Wanted) -> None:
    """Make the fork, unless the same rehearsal has made it already."""
    base = past.base
    mark = {"of": str(base.resolve()), "first": wanted.first, "set": [*map(asdict, wanted.settings)]}
    if wanted.files:
        mark["files"] = {file: sha256(raw).hexdigest() for file, raw in wanted.files.items()}
    found = read_now(folder, MARK)
    if found is not None:
        if parse(found) != mark:
            hint = "go on with the same organisation, ticks and --set, or name another folder"
            raise UsageError("another rehearsal is kept here", where=str(folder), hint=hint)
        return
    changed = {
        **wanted.files,
        **files_with(wanted.settings, lambda file: wanted.files.get(file) or _file_now(base, file)),
    }
    _require_sound(changed)
    fork(past, past.state_after(wanted.first - 1), folder, [])
    _bring_up_to_date(base, folder)
    for file, content in changed.items():
        if not (folder / file).exists() and not file.startswith("config/"):
            why = f"{file} was not there before tick {wanted.first}"
            raise UsageError(why, hint="choose later --ticks")
        fs.publish(folder, file, content)
    # Last: a fork that was cut off on its way is not to be gone on with.
    fs.publish(folder, MARK, pretty(mark))


def _require_sound(changed: Mapping[str, bytes]) -> None:
    """Raise `UsageError` for a resume that the change breaks: its agent would just take no turns."""
    for file, content in changed.items():
        name = PurePosixPath(file).parent.name
        if file != paths.resume_file(name):
            continue
        try:
            decode_resume(name, content)
        except ConfigError as error:
            first = error.problems[0]
            why = f"--set would break {file}: {first.pointer}: {first.message}"
            raise UsageError(why, hint=first.hint or "`lemming schema resume` says what fits") from error


def _bring_up_to_date(base: Path, folder: Path) -> None:
    """Put what people settle into the fork as it is now: resumes, `config/`, files of functions."""
    there = {*agent_folders(folder)}
    files = [paths.resume_file(name) for name in agent_folders(base) if name in there]
    files += [file for file in files_of(base) if file.startswith("config/")]
    for file in [*files, *_tool_files(base)]:
        content = read_now(base, file)
        if content is not None and content != read_now(folder, file):
            fs.publish(folder, file, content)


def _tool_files(base: OrgPath) -> list[str]:
    """Return the files of functions that the settings name, with those beside them: they may be anywhere."""
    patterns = load_config(base).org.tool_files
    if not patterns:
        return []
    from lemming.capabilities.toolbox.functions.finding import find_files, with_neighbours

    return [*with_neighbours(Path(base), find_files(Path(base), patterns)[0])]


def _file_now(base: OrgPath, file: str) -> bytes:
    files = [*files_of(base)]
    content = read_now(base, file) if file in files else None
    if content is None:
        can_be_set = [it for it in files if it.endswith(".json") and "/outbox/" not in it]
        hint = nearest(file, can_be_set) or "a path from the organisation's folder"
        raise UsageError(f"there is no file {file}", hint=hint)
    return content


def _run_ticks(runtime: Rehearsing, record: _Record, ticks: range) -> Iterator[tuple[int, str]]:
    """Run the ticks again, and yield the turns that cannot be repeated: the engine or the disk ended them."""
    for tick in ticks:
        questions = record.questions(tick)
        runtime.begin(questions, record.at(tick))
        # A tick that an interrupted rehearsal began has this in its journal already.
        if tick not in journal_ticks(runtime.org):
            record.deliver(runtime.base, tick)
            if questions.recorded.records:
                say_again(runtime, questions.recorded)
                yield from ((tick, name) for name in give_up_again(runtime, questions.recorded))
        if not run_opened(runtime, tick, advance=True).is_complete:
            return


def _compared(record: _Record, folder: Path, ticks: range) -> dict[str, Any]:
    """Return what differs in these ticks between the record and the fork."""
    new_ticks = {*journal_ticks(folder)}
    prompts = prompts_in(folder)
    entries: list[EntryDifference] = []
    ends: list[EndDifference] = []
    written: tuple[dict[str, bytes], dict[str, bytes]] = {}, {}
    for tick in ticks:
        again = read_tick(folder, tick, prompts) if tick in new_ticks else RecordedTick(tick)
        sides = [_turns_of(record.tick(tick)), _turns_of(again)]
        said = ([entry for turn in side.values() for entry in turn.entries] for side in sides)
        entries += differing_entries(*said)
        for name in sorted({*sides[0], *sides[1]}):
            before, after = (_end_of(side.get(name)) for side in sides)
            if before != after:
                ends.append(EndDifference(tick, name, before, after))
        for side, files in zip(sides, written, strict=True):
            files |= {place: raw for turn in side.values() for place, raw in _files_of_turn(turn)}
    changes = (
        change_of(file, *(side.get(file) for side in written))[0]
        for file in sorted({*written[0], *written[1]})
    )
    return {"entries": entries, "ends": ends, "files": [change for change in changes if change]}


def _turns_of(recorded: RecordedTick) -> dict[str, TurnRecord]:
    return {turn.agent: turn for turn in recorded.turns} if recorded.records else {}


def _end_of(turn: TurnRecord | None) -> str:
    """Return how a turn ended in words; empty for none."""
    if turn is None or turn.report is None:
        return ""
    report = turn.report
    return f"{report.end or report.status}: {report.reason}" if report.reason else report.end or report.status


def _files_of_turn(turn: TurnRecord) -> Iterator[tuple[str, bytes]]:
    """Yield the files that a turn wrote, but for its entries, which are told by themselves."""
    entries = {entry.file for entry in turn.entries}
    for place, effect in turn.writes.items():
        if place not in entries and not effect.root:
            yield place, effect.content
