"""Evaluation cases: loaded from their files and validated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from lemming.capabilities.conditions import predicates
from lemming.capabilities.conditions.regex_search import compile_regex
from lemming.kernel.base import paths
from lemming.kernel.base.clock import is_timestamp
from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.base.jsontext import escape_pointer_key, locate
from lemming.kernel.base.name_patterns import InvalidPattern
from lemming.kernel.files import fs
from lemming.kernel.files.fast_decoder import TypeMismatch
from lemming.kernel.files.json_documents import Document, parse_document, unreadable_error
from lemming.kernel.org.organisation import OrgPath
from lemming.queries.case_format import (
    KINDS,
    LIMIT_BYTES,
    Case,
    CaseViolation,
    Expectation,
    JudgeCheck,
    case_file,
)


def load_case(base: OrgPath, name: str) -> Document[Case]:
    """Load a case; raise `ConfigError` with every problem in the file.

    An unknown key is an error: an expectation under a misspelled key would always pass.
    """
    file = case_file(name)
    try:
        raw = fs.read_bytes(base / file, LIMIT_BYTES)
    except OSError as error:
        raise unreadable_error(file, error) from error
    document: Document[Case] = parse_document(raw, file, Case, limit_bytes=LIMIT_BYTES)
    text = raw.decode().removeprefix("\ufeff")
    problems = [replace(problem, severity="error") for problem in document.warnings if problem.pointer]
    problems += [
        Problem(message, file, *locate(text, pointer), pointer=pointer, hint=hint)
        for pointer, message, hint in _validate_case(document.value)
    ]
    if problems:
        raise ConfigError(str(problems[0]), problems=tuple(problems))
    return document


def _validate_case(case: Case) -> Iterator[CaseViolation]:
    if case.now and not is_timestamp(case.now):
        yield "/now", f'"{case.now}" is no moment', "write it so: 2026-01-05T09:00:00.000Z"
    for file, change in case.set.items():
        if message := _explain_invalid_change(file, change):
            yield (
                f"/set/{escape_pointer_key(file)}",
                message,
                'such as "agents/editor/resume.json": {"instructions": "..."}',
            )
    for index, case_message in enumerate(case.send):
        if case.ticks is not None and case_message.before_tick > case.ticks:
            yield f"/send/{index}/before_tick", f"there are {case.ticks} ticks only", 'raise "ticks"'
    for index, expectation in enumerate(case.expect):
        yield from _validate_expectation(expectation, f"/expect/{index}", case)


def _explain_invalid_change(file: str, change: Any) -> str:
    parts = file.split("/")
    if file.startswith("/") or any(part in ("", ".", "..") for part in parts):
        return f'"{file}" is no path in the organisation'
    if parts[0] in (paths.EVALS, "logs") or parts[0].startswith("."):
        return f"{parts[0]} is not in the copy"
    return "" if isinstance(change, (dict, str)) else "expected an object or a text"


def _validate_expectation(expectation: Expectation, pointer: str, case: Case) -> Iterator[CaseViolation]:
    kind = expectation.kind
    if not kind:
        set_keys = [key for key in KINDS if getattr(expectation, key) is not None]
        message = f"{' and '.join(set_keys)} in one" if set_keys else "nothing is expected"
        yield pointer, message, f"exactly one of: {', '.join(KINDS)}"
        return
    expected, kind_pointer = getattr(expectation, kind), f"{pointer}/{kind}"
    yield from _validate_conditions(expected, kind_pointer)
    if kind == "answer" and case.ask is None:
        yield kind_pointer, "nothing is asked", 'add "ask": {"to": "...", "text": "..."}'
    if kind == "cost" and not any(value is not None for value in vars(expected).values()):
        yield kind_pointer, "no limit is given", 'such as "at_most_usd": 0.05'
    if kind in ("tool_called", "findings"):
        at_most = expected.at_most
        if at_most is not None and at_most < expected.at_least:
            yield kind_pointer, f"at least {expected.at_least} and at most {at_most}", "no number is both"
    if kind == "judge":
        yield from _validate_judge(expected, kind_pointer)


def _validate_conditions(expected: Any, pointer: str) -> Iterator[CaseViolation]:
    """Yield the invalid regular expressions and conditions of an expected item."""
    if pattern := getattr(expected, "matches", ""):
        try:
            compile_regex(pattern)
        except InvalidPattern as error:
            hint = "put a backslash before characters that are meant as they are"
            yield f"{pointer}/matches", f"no regular expression: {error}", hint
    if (condition := getattr(expected, "when", None)) is not None:
        for problem in predicates.validate_condition(condition, f"{pointer}/when"):
            yield problem.pointer, problem.message, problem.hint


def _validate_judge(judge_check: JudgeCheck, pointer: str) -> Iterator[CaseViolation]:
    from lemming.capabilities.judges.judges_settings import parse_judge_target  # only where a judge is wanted

    try:
        if parse_judge_target(judge_check.by).kind == "command":
            raise TypeMismatch("a program is no judge here")
    except TypeMismatch as error:
        yield f"{pointer}/by", str(error), 'a program is an expectation of its own: "command"'
    if (judge_check.entry is None) == (not judge_check.file):
        yield (
            pointer,
            "the judge is to be shown either entries or a file",
            'such as "entry": {"author": "ada"}',
        )
    if judge_check.entry:
        yield from _validate_conditions(judge_check.entry, f"{pointer}/entry")
