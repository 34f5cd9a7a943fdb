"""Evaluation cases, `evals/<name>/case.json`: format, loading, validation. Reference: docs/history.md."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from lemming.kernel.base import paths
from lemming.kernel.base.clock import is_timestamp
from lemming.kernel.base.entry_kinds import FindingKind, MessageKind
from lemming.kernel.base.errors import ConfigError, Problem, UsageError
from lemming.kernel.base.jsontext import did_you_mean, escape_pointer_key, locate
from lemming.kernel.base.name_patterns import InvalidPattern
from lemming.kernel.files import fs
from lemming.kernel.files.fast_decoder import TypeMismatch, describe_field, make_field
from lemming.kernel.files.json_documents import Document, parse_document, unreadable_error
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.plugins.capability_loader import require_fact
from lemming.libraries.conditions import predicates
from lemming.libraries.conditions.regex_search import compile_regex

CASE_FILE = "case.json"
SCRIPT_FILE = "answers.jsonl"
RECORD_FILE = "recorded.jsonl"
SAME_ORG = "../.."
LIMIT_BYTES = 1 << 20
CASE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z")

AnswersFrom = Literal["recorded", "scripted", "live"]
Condition = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class CaseMessage:
    """An entry written by a person."""

    text: str = field(metadata=describe_field("Text of the entry.", min_length=1))
    to: str = make_field("", "Recipient; empty: every reader.")
    author: str = make_field("human", "Which person writes it.", key="from")
    kind: MessageKind = make_field("message", "Its kind.")
    payload: dict[str, Any] = make_field(dict, "Further keys of its payload.")
    before_tick: int = make_field(1, "Tick of the case before which it is written; 1 is the first.", ge=1)


@dataclass(frozen=True, kw_only=True)
class CaseRequest:
    """A request by a person before the first tick."""

    to: str = field(metadata=describe_field("The agent to ask.", min_length=1))
    text: str = field(metadata=describe_field("Text of the request.", min_length=1))
    author: str = make_field("human", "Which person asks.", key="from")
    schema: dict[str, Any] | None = make_field(None, "JSON Schema of the answer.")


@dataclass(frozen=True, kw_only=True)
class ExpectedEntry:
    """Expected entries: entries written during the case, excluding entries sent by the case itself."""

    author: str = make_field("", "Author; empty: any.")
    kind: MessageKind | None = make_field(None, "Kind; null: any.")
    to: str = make_field("", "Agent in payload.target; empty: any.")
    matches: str = make_field("", "Regular expression that its text must match.")
    when: Condition | None = make_field(None, "Condition on the entry as in its file.")
    within_ticks: int | None = make_field(None, "Maximum number of ticks of the case; null: all.", ge=1)
    at_least: int = make_field(1, "Minimum number.", ge=1)


@dataclass(frozen=True, kw_only=True)
class ExpectedFile:
    """A file of the organisation after the last tick."""

    path: str = field(metadata=describe_field("Its path in the organisation.", min_length=1))
    exists: bool = make_field(True, "True: the file must exist. False: it must not.")
    matches: str = make_field("", "Regular expression that its text must match.")
    when: Condition | None = make_field(None, "Condition on the JSON in it.")


@dataclass(frozen=True, kw_only=True)
class ExpectedCall:
    """Expected tool calls by turns of the case."""

    tool: str = field(metadata=describe_field("The tool's name.", min_length=1))
    agent: str = make_field("", "Calling agent; empty: any.")
    success: bool | None = make_field(None, "True: successful calls. False: failed ones. Null: both.")
    when: Condition | None = make_field(None, "Condition on the call: agent, tick, tool, args, success, output.")
    at_least: int = make_field(1, "Minimum number.", ge=0)
    at_most: int | None = make_field(None, "Maximum number; null: any.", ge=0)


@dataclass(frozen=True, kw_only=True)
class ExpectedCost:
    """Cost limits of the case, by the prices of its models; recorded answers count at their original cost."""

    at_most_usd: float | None = make_field(None, "Maximum dollars; an unknown price fails.", ge=0)
    at_most_credits: float | None = make_field(None, "Maximum credits.", ge=0)
    at_most_calls: int | None = make_field(None, "Maximum number of model calls.", ge=0)
    when: Condition | None = make_field(
        None, "Condition on calls, credits, cost_usd, input_tokens, output_tokens, ticks."
    )


@dataclass(frozen=True, kw_only=True)
class ExpectedFindings:
    """Expected findings of `lemming findings` after the last tick; none by default."""

    kind: FindingKind | None = make_field(None, "Kind of finding; null: any.")
    agent: str = make_field("", "Agent that the finding is about; empty: any.")
    when: Condition | None = make_field(None, "Condition on the finding as JSON.")
    at_least: int = make_field(0, "Minimum number.", ge=0)
    at_most: int | None = make_field(None, "Maximum number; null: none if at_least is 0, else any.", ge=0)


@dataclass(frozen=True, kw_only=True)
class CommandCheck:
    """A program run in the copy after the last tick. A program is code and needs a person's consent."""

    run: list[str] = field(metadata=describe_field("The program and its arguments.", min_length=1))
    timeout_s: float = make_field(60.0, "Timeout in seconds.", gt=0, le=3600)


@dataclass(frozen=True, kw_only=True)
class JudgeCheck:
    """A model that passes or fails the written text. An identical prompt is sent only once."""

    by: str | dict[str, str | list[str]] = field(
        metadata=describe_field('An agent, a model key, {"agent": name} or {"model": key}.')
    )
    rubric: str = field(metadata=describe_field("Rules for the judge.", min_length=1))
    entry: ExpectedEntry | None = make_field(None, "Entries that the judge is shown.")
    file: str = make_field("", "File of the organisation that the judge is shown.")


@dataclass(frozen=True, kw_only=True)
class ExpectedAnswer:
    """Expected outcome of the request in `ask`."""

    end: Literal["answered", "failed", "refused", "cancelled", "expired"] = make_field(
        "answered", "How the request must end."
    )
    matches: str = make_field("", "Regular expression that the answer must match.")
    when: Condition | None = make_field(None, "Condition on the answer: a text, or an object with its fields.")


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """An expected result of the case: exactly one of the keys besides `name`."""

    name: str = make_field("", "Name in reports.")
    entry: ExpectedEntry | None = make_field(None, "An entry must have been written.")
    no_entry: ExpectedEntry | None = make_field(None, "No such entry may have been written.")
    file: ExpectedFile | None = make_field(None, "Check of a file.")
    tool_called: ExpectedCall | None = make_field(None, "Check of tool calls.")
    answer: ExpectedAnswer | None = make_field(None, "Check of the answer to `ask`.")
    cost: ExpectedCost | None = make_field(None, "Maximum cost.")
    findings: ExpectedFindings | None = make_field(None, "Check of findings; by default there must be none.")
    command: CommandCheck | None = make_field(None, "A program that must end with 0.")
    judge: JudgeCheck | None = make_field(None, "A judge that must accept it.")

    @property
    def kind(self) -> str:
        """The key that is set, or an empty string unless exactly one is set."""
        set_keys = [key for key in KINDS if getattr(self, key) is not None]
        return set_keys[0] if len(set_keys) == 1 else ""


KINDS = tuple(key_field.name for key_field in fields(Expectation) if key_field.name != "name")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A case: the starting organisation, the actions and the expectations."""

    description: str = make_field("", "Purpose, in one sentence.")
    start: str = make_field(
        SAME_ORG, 'The organisation it starts from, from the case\'s folder; "../..": this one.', key="from"
    )
    at: int | None = make_field(None, "Tick to start after; null: the current state.", ge=0, le=10**12)
    set: dict[str, Any] = make_field(
        dict,
        "Changes before the start, by file: an object merges into its JSON (null removes a key; "
        "keys that begin with / are JSON pointers), a text replaces the file.",
    )
    send: list[CaseMessage] = make_field(list, "Entries of people.")
    ask: CaseRequest | None = make_field(None, "A request sent before the first tick.")
    ticks: int | None = make_field(
        None, "Number of ticks; null: until nothing new is addressed to anybody.", ge=1, le=10_000
    )
    now: str = make_field("", "Time of the first tick; empty: the clock continues from the last tick.")
    answers: AnswersFrom = make_field(
        "recorded",
        'Source of answers. "recorded": recorded by `lemming eval --record`; "scripted": '
        'answers.jsonl in the case\'s folder; "live": the models, every time.',
    )
    tools: dict[str, str] = make_field(dict, "Results of these tools; they are not called.", max_length=100)
    repeat: int = make_field(1, "Number of runs.", ge=1, le=1000)
    expect: list[Expectation] = field(metadata=describe_field("What must be true; all of it.", min_length=1))


def case_file(name: str) -> str:
    """Return the path of a case file in the organisation."""
    return f"{paths.EVALS}/{name}/{CASE_FILE}"


def list_case_names(base: OrgPath) -> list[str]:
    """Return the names of the organisation's cases, sorted."""
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = sorted(name for name in os.listdir(base / paths.EVALS) if CASE_NAME.match(name))
    return [name for name in names if os.path.lexists(base / case_file(name))]


def select_cases(base: OrgPath, names: list[str]) -> list[str]:
    """Return the named cases, or all cases if no name is given; raise `UsageError` for an unknown name."""
    existing_names = list_case_names(base)
    for name in names:
        if name not in existing_names:
            listed = f"cases: {', '.join(existing_names) or 'none'}; see docs/history.md"
            hint = did_you_mean(name, existing_names) or listed
            raise UsageError(f'case "{name}" does not exist in {paths.EVALS}/', hint=hint)
    if not existing_names:
        raise UsageError("no cases exist here", where=f"{paths.EVALS}/", hint=f"write {case_file('first')}")
    return list(dict.fromkeys(names)) or existing_names


CaseViolation = tuple[str, str, str]
"""The location, the mistake, and the fix."""


def load_case(base: OrgPath, name: str) -> Document[Case]:
    """Load a case. Raise `ConfigError` with every problem, also unknown keys: such an expectation always passes."""
    file = case_file(name)
    try:
        raw = fs.read_bytes(base / file, LIMIT_BYTES)
    except OSError as error:
        raise unreadable_error(file, error) from error
    document: Document[Case] = parse_document(raw, file, Case, limit_bytes=LIMIT_BYTES)
    text = raw.decode().removeprefix("\ufeff")
    problems = [replace(problem, severity="error") for problem in document.warnings if problem.pointer]
    for pointer, message, hint in _validate_case(document.value):
        problems.append(Problem(message, file, *locate(text, pointer), pointer=pointer, hint=hint))
    if problems:
        raise ConfigError(str(problems[0]), problems=tuple(problems))
    return document


def _validate_case(case: Case) -> Iterator[CaseViolation]:
    if case.now and not is_timestamp(case.now):
        yield "/now", f'must be a time, got "{case.now}"', "write it like 2026-01-05T09:00:00.000Z"
    for file, change in case.set.items():
        if message := _explain_invalid_change(file, change):
            hint = 'write for example "agents/editor/resume.json": {"instructions": "..."}'
            yield f"/set/{escape_pointer_key(file)}", message, hint
    for index, case_message in enumerate(case.send):
        if case.ticks is not None and case_message.before_tick > case.ticks:
            yield f"/send/{index}/before_tick", f"the case has only {case.ticks} ticks", 'raise "ticks"'
    for index, expectation in enumerate(case.expect):
        yield from _validate_expectation(expectation, f"/expect/{index}", case)


def _explain_invalid_change(file: str, change: Any) -> str:
    parts = file.split("/")
    if file.startswith("/") or any(part in ("", ".", "..") for part in parts):
        return f'"{file}" must be a path in the organisation'
    if parts[0] in (paths.EVALS, "logs") or parts[0].startswith("."):
        return f"{parts[0]} is not in the copy"
    return "" if isinstance(change, (dict, str)) else "expected an object or a text"


def _validate_expectation(expectation: Expectation, pointer: str, case: Case) -> Iterator[CaseViolation]:
    kind = expectation.kind
    if not kind:
        set_keys = [key for key in KINDS if getattr(expectation, key) is not None]
        message = f"expected one expectation, got {' and '.join(set_keys)}" if set_keys else "no expectation is set"
        yield pointer, message, f"set exactly one of: {', '.join(KINDS)}"
        return
    expected, kind_pointer = getattr(expectation, kind), f"{pointer}/{kind}"
    yield from _validate_conditions(expected, kind_pointer)
    if kind == "answer" and case.ask is None:
        yield kind_pointer, "the case makes no request", 'add "ask": {"to": "...", "text": "..."}'
    if kind == "cost" and not any(value is not None for value in vars(expected).values()):
        yield kind_pointer, "no limit is set", 'write for example "at_most_usd": 0.05'
    if kind in ("tool_called", "findings"):
        at_most = expected.at_most
        if at_most is not None and at_most < expected.at_least:
            problem = f"at_least must not exceed at_most, got {expected.at_least} and {at_most}"
            yield kind_pointer, problem, "lower at_least or raise at_most"
    if kind == "judge":
        yield from _validate_judge(expected, kind_pointer)


def _validate_conditions(expected: Any, pointer: str) -> Iterator[CaseViolation]:
    """Yield the invalid regular expressions and conditions of an expected item."""
    if pattern := getattr(expected, "matches", ""):
        try:
            compile_regex(pattern)
        except InvalidPattern as error:
            hint = "escape literal special characters with a backslash"
            yield f"{pointer}/matches", f"must be a regular expression: {error}", hint
    if (condition := getattr(expected, "when", None)) is not None:
        for problem in predicates.validate_condition(condition, f"{pointer}/when"):
            yield problem.pointer, problem.message, problem.hint


def _validate_judge(judge_check: JudgeCheck, pointer: str) -> Iterator[CaseViolation]:
    try:
        if require_fact("judges.parse_target")(judge_check.by).kind == "command":
            raise TypeMismatch("a judge must be an agent or a model, got a program")
    except TypeMismatch as error:
        yield f"{pointer}/by", str(error), 'write a program as an expectation: "command"'
    if (judge_check.entry is None) == (not judge_check.file):
        hint = 'write for example "entry": {"author": "ada"}'
        yield pointer, "the judge must be shown either entries or a file", hint
    if judge_check.entry:
        yield from _validate_conditions(judge_check.entry, f"{pointer}/entry")
