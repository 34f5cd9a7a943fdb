"""`evals/<name>/case.json`: what is done to a copy of an organisation, and what is to come of it.

Only the format lives here; `lemming.evals` runs it. Reference: docs/evals.md.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from lemming.capabilities.conditions import when
from lemming.capabilities.conditions.expressions import expression
from lemming.kernel.base import paths
from lemming.kernel.base.clock import is_timestamp
from lemming.kernel.base.errors import ConfigError, Problem, UsageError
from lemming.kernel.base.jsontext import escaped, locate, nearest
from lemming.kernel.base.kinds import FindingKind, MessageKind
from lemming.kernel.base.patterns import NoExpression
from lemming.kernel.files import fs
from lemming.kernel.files.documents import Document, read_text, unreadable
from lemming.kernel.files.fitting import Misfit, about, keyed
from lemming.kernel.org.organisation import OrgPath

CASE_FILE = "case.json"
SCRIPT_FILE = "answers.jsonl"
RECORD_FILE = "recorded.jsonl"
HERE = "../.."
LIMIT_BYTES = 1 << 20
CASE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z")

AnswersFrom = Literal["recorded", "scripted", "live"]
Condition = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Sent:
    """An entry that a person writes."""

    text: str = field(metadata=about("What it says.", min_length=1))
    to: str = field(default="", metadata=about("Whom it is for; empty: everybody who may read it."))
    author: str = field(default="human", metadata=keyed("from", "Which person writes it."))
    kind: MessageKind = field(default="message", metadata=about("Its kind."))
    payload: dict[str, Any] = field(default_factory=dict, metadata=about("Further keys of its payload."))
    before_tick: int = field(
        default=1, metadata=about("Before which tick of the case it is written; 1 is the first.", ge=1)
    )


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request that a person makes before the first tick."""

    to: str = field(metadata=about("Which agent is asked.", min_length=1))
    text: str = field(metadata=about("What it is asked.", min_length=1))
    author: str = field(default="human", metadata=keyed("from", "Which person asks."))
    schema: dict[str, Any] | None = field(default=None, metadata=about("JSON Schema of the answer."))


@dataclass(frozen=True, kw_only=True)
class EntryWanted:
    """Entries that were written in the case, not those that the case itself sends."""

    author: str = field(default="", metadata=about("Who wrote it; empty: anybody."))
    kind: MessageKind | None = field(default=None, metadata=about("Its kind; null: any."))
    to: str = field(default="", metadata=about("Whom its payload.target names; empty: whoever."))
    matches: str = field(default="", metadata=about("A regular expression that its text matches somewhere."))
    when: Condition | None = field(default=None, metadata=about("A condition on the entry, as its file is."))
    within_ticks: int | None = field(
        default=None, metadata=about("In how many ticks of the case; null: all of them.", ge=1)
    )
    at_least: int = field(default=1, metadata=about("How many there must be.", ge=1))


@dataclass(frozen=True, kw_only=True)
class FileWanted:
    """A file of the organisation after the last tick."""

    path: str = field(metadata=about("Its path in the organisation.", min_length=1))
    exists: bool = field(default=True, metadata=about("Whether it is to be there."))
    matches: str = field(default="", metadata=about("A regular expression that its text matches somewhere."))
    when: Condition | None = field(default=None, metadata=about("A condition on the JSON in it."))


@dataclass(frozen=True, kw_only=True)
class CallWanted:
    """Calls of a tool that turns made in the case."""

    tool: str = field(metadata=about("The tool's name.", min_length=1))
    agent: str = field(default="", metadata=about("Who called it; empty: anybody."))
    success: bool | None = field(default=None, metadata=about("Whether it worked; null: either."))
    when: Condition | None = field(
        default=None, metadata=about("A condition on the call: agent, tick, tool, args, success, output.")
    )
    at_least: int = field(default=1, metadata=about("How many there must be.", ge=0))
    at_most: int | None = field(default=None, metadata=about("How many there may be; null: any.", ge=0))


@dataclass(frozen=True, kw_only=True)
class CostWanted:
    """What the case may cost, by the prices of its models; recorded answers count as what they cost once."""

    at_most_usd: float | None = field(default=None, metadata=about("Dollars; an unknown price fails.", ge=0))
    at_most_credits: float | None = field(default=None, metadata=about("Credits.", ge=0))
    at_most_calls: int | None = field(default=None, metadata=about("Model calls.", ge=0))
    when: Condition | None = field(
        default=None,
        metadata=about("A condition on: calls, credits, cost_usd, input_tokens, output_tokens, ticks."),
    )


@dataclass(frozen=True, kw_only=True)
class FindingWanted:
    """What `lemming findings` says after the last tick: by default nothing."""

    kind: FindingKind | None = field(default=None, metadata=about("Which kind of finding; null: any."))
    agent: str = field(default="", metadata=about("About whom; empty: anybody."))
    when: Condition | None = field(default=None, metadata=about("A condition on the finding as JSON."))
    at_least: int = field(default=0, metadata=about("How many there must be.", ge=0))
    at_most: int | None = field(
        default=None, metadata=about("How many there may be; null: none where none must be, else any.", ge=0)
    )


@dataclass(frozen=True, kw_only=True)
class CommandWanted:
    """A program that is run in the copy after the last tick. It is code: somebody must have agreed to it."""

    run: list[str] = field(metadata=about("The program and its arguments.", min_length=1))
    timeout_s: float = field(default=60.0, metadata=about("How long it may take.", gt=0, le=3600))


@dataclass(frozen=True, kw_only=True)
class JudgeWanted:
    """A model that passes or fails what was written. The same question is asked once only."""

    by: str | dict[str, str | list[str]] = field(
        metadata=about('An agent, a model key, {"agent": name} or {"model": key}.')
    )
    rubric: str = field(metadata=about("What it judges by.", min_length=1))
    entry: EntryWanted | None = field(default=None, metadata=about("Which entries it is shown."))
    file: str = field(default="", metadata=about("Which file of the organisation it is shown."))


@dataclass(frozen=True, kw_only=True)
class AnswerWanted:
    """What came of the request in `ask`."""

    end: Literal["answered", "failed", "refused", "cancelled", "expired"] = field(
        default="answered", metadata=about("How it ends.")
    )
    matches: str = field(default="", metadata=about("A regular expression that the answer matches."))
    when: Condition | None = field(
        default=None, metadata=about("A condition on the answer: a text, or an object with its fields.")
    )


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """One thing that must come of the case: exactly one of the keys besides `name`."""

    name: str = field(default="", metadata=about("What it is called in reports."))
    entry: EntryWanted | None = field(default=None, metadata=about("Such an entry was written."))
    no_entry: EntryWanted | None = field(default=None, metadata=about("No such entry was written."))
    file: FileWanted | None = field(default=None, metadata=about("Such a file is there."))
    tool_called: CallWanted | None = field(default=None, metadata=about("A tool was called so."))
    answer: AnswerWanted | None = field(default=None, metadata=about("The request came to this."))
    cost: CostWanted | None = field(default=None, metadata=about("It cost no more than this."))
    findings: FindingWanted | None = field(default=None, metadata=about("There are no such findings."))
    command: CommandWanted | None = field(default=None, metadata=about("A program ends with 0."))
    judge: JudgeWanted | None = field(default=None, metadata=about("A judge passes it."))

    @property
    def kind(self) -> str:
        """Which of the keys it has; empty where it is not exactly one."""
        given = [key for key in KINDS if getattr(self, key) is not None]
        return given[0] if len(given) == 1 else ""


KINDS = tuple(each.name for each in fields(Expectation) if each.name != "name")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One case: where it starts, what happens, and what is expected."""

    description: str = field(default="", metadata=about("What it is for, in a sentence."))
    start: str = field(
        default=HERE,
        metadata=keyed(
            "from", 'The organisation it starts from, from the case\'s folder; "../..": this one.'
        ),
    )
    at: int | None = field(
        default=None, metadata=about("After which tick of it; null: as it is now.", ge=0, le=10**12)
    )
    set: dict[str, Any] = field(
        default_factory=dict,
        metadata=about(
            "What is changed before, by file: an object merges into its JSON (null takes a key away; keys "
            "that begin with / are JSON pointers), a text replaces the file."
        ),
    )
    send: list[Sent] = field(default_factory=list, metadata=about("What people write."))
    ask: Asked | None = field(default=None, metadata=about("A request that is made before the first tick."))
    ticks: int | None = field(
        default=None,
        metadata=about("How many are run; null: until nothing new is addressed to anybody.", ge=1, le=10_000),
    )
    now: str = field(
        default="",
        metadata=about("What the clock says in the first tick; empty: it goes on from the last tick."),
    )
    answers: AnswersFrom = field(
        default="recorded",
        metadata=about(
            'Who answers for models. "recorded": what they said when `lemming eval --record` asked them; '
            '"scripted": answers.jsonl in the case\'s folder; "live": the models, every time.'
        ),
    )
    tools: dict[str, str] = field(
        default_factory=dict,
        metadata=about("What calls of these tools give; they are not made.", max_length=100),
    )
    repeat: int = field(default=1, metadata=about("How often it is run.", ge=1, le=1000))
    expect: list[Expectation] = field(metadata=about("What must come of it; all of it.", min_length=1))


# --- reading ----------------------------------------------------------------------------------


def case_file(name: str) -> str:
    """Return the path of a case in the organisation."""
    return f"{paths.EVALS}/{name}/{CASE_FILE}"


def case_names(base: OrgPath) -> list[str]:
    """Return the names of the organisation's cases, sorted."""
    found: list[str] = []
    with contextlib.suppress(OSError):
        found = sorted(name for name in os.listdir(base / paths.EVALS) if CASE_NAME.match(name))
    return [name for name in found if os.path.lexists(base / case_file(name))]


def chosen(base: OrgPath, names: list[str]) -> list[str]:
    """Return the cases that are meant, all where none is named; raise `UsageError` for one there is not."""
    known = case_names(base)
    for name in names:
        if name not in known:
            hint = nearest(name, known) or f"cases: {', '.join(known) or 'none'}; docs/evals.md says how"
            raise UsageError(f'there is no case "{name}" in {paths.EVALS}/', hint=hint)
    if not known:
        raise UsageError(
            "there are no cases here", where=f"{paths.EVALS}/", hint=f"write {case_file('first')}"
        )
    return list(dict.fromkeys(names)) or known


def load_case(base: OrgPath, name: str) -> Document[Case]:
    """Return a case; raise `ConfigError` with all that is wrong with it.

    A key that it does not have is an error: what is expected by a misspelled one would always come.
    """
    file = case_file(name)
    try:
        raw = fs.read_bytes(base / file, LIMIT_BYTES)
    except OSError as error:
        raise unreadable(file, error) from error
    document: Document[Case] = read_text(raw, file, Case, limit_bytes=LIMIT_BYTES)
    text = raw.decode().removeprefix("\ufeff")
    wrong = [replace(problem, severity="error") for problem in document.warnings if problem.pointer]
    wrong += [
        Problem(message, file, *locate(text, pointer), pointer=pointer, hint=hint)
        for pointer, message, hint in _wrong(document.value)
    ]
    if wrong:
        raise ConfigError(str(wrong[0]), problems=tuple(wrong))
    return document


# --- what is wrong with one --------------------------------------------------------------------

Wrong = tuple[str, str, str]
"""The place, the mistake, what to write instead."""


def _wrong(case: Case) -> Iterator[Wrong]:
    if case.now and not is_timestamp(case.now):
        yield "/now", f'"{case.now}" is no moment', "write it so: 2026-01-05T09:00:00.000Z"
    for file, change in case.set.items():
        if why := _why_not_set(file, change):
            yield (
                f"/set/{escaped(file)}",
                why,
                'such as "agents/editor/resume.json": {"instructions": "..."}',
            )
    for index, sent in enumerate(case.send):
        if case.ticks is not None and sent.before_tick > case.ticks:
            yield f"/send/{index}/before_tick", f"there are {case.ticks} ticks only", 'raise "ticks"'
    for index, expectation in enumerate(case.expect):
        yield from _wrong_with(expectation, f"/expect/{index}", case)


def _why_not_set(file: str, change: Any) -> str:
    parts = file.split("/")
    if file.startswith("/") or any(part in ("", ".", "..") for part in parts):
        return f'"{file}" is no path in the organisation'
    if parts[0] in (paths.EVALS, "logs") or parts[0].startswith("."):
        return f"{parts[0]} is not in the copy"
    return "" if isinstance(change, (dict, str)) else "expected an object or a text"


def _wrong_with(expectation: Expectation, pointer: str, case: Case) -> Iterator[Wrong]:
    kind = expectation.kind
    if not kind:
        given = [key for key in KINDS if getattr(expectation, key) is not None]
        what = f"{' and '.join(given)} in one" if given else "nothing is expected"
        yield pointer, what, f"exactly one of: {', '.join(KINDS)}"
        return
    wanted, place = getattr(expectation, kind), f"{pointer}/{kind}"
    yield from _wrong_inside(wanted, place)
    if kind == "answer" and case.ask is None:
        yield place, "nothing is asked", 'add "ask": {"to": "...", "text": "..."}'
    if kind == "cost" and not any(value is not None for value in vars(wanted).values()):
        yield place, "no limit is given", 'such as "at_most_usd": 0.05'
    if kind in ("tool_called", "findings"):
        most = wanted.at_most
        if most is not None and most < wanted.at_least:
            yield place, f"at least {wanted.at_least} and at most {most}", "no number is both"
    if kind == "judge":
        yield from _wrong_with_judge(wanted, place)


def _wrong_inside(wanted: Any, place: str) -> Iterator[Wrong]:
    """Yield what is wrong with a regular expression or a condition of what is wanted."""
    if pattern := getattr(wanted, "matches", ""):
        try:
            expression(pattern)
        except NoExpression as error:
            hint = "put a backslash before characters that are meant as they are"
            yield f"{place}/matches", f"no regular expression: {error}", hint
    if (condition := getattr(wanted, "when", None)) is not None:
        for problem in when.problems_of(condition, f"{place}/when"):
            yield problem.pointer, problem.message, problem.hint


def _wrong_with_judge(wanted: JudgeWanted, place: str) -> Iterator[Wrong]:
    from lemming.capabilities.judges.settings import judge_named  # only where a judge is wanted

    try:
        if judge_named(wanted.by).kind == "command":
            raise Misfit("a program is no judge here")
    except Misfit as error:
        yield f"{place}/by", str(error), 'a program is an expectation of its own: "command"'
    if (wanted.entry is None) == (not wanted.file):
        yield place, "the judge is to be shown either entries or a file", 'such as "entry": {"author": "ada"}'
    if wanted.entry:
        yield from _wrong_inside(wanted.entry, f"{place}/entry")
