"""Evaluation cases: loaded from their files and validated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from lemming.kernel.base import paths
from lemming.kernel.base.clock import is_timestamp
from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.base.jsontext import escape_pointer_key, locate
from lemming.kernel.base.name_patterns import InvalidPattern
from lemming.kernel.files import fs
from lemming.kernel.files.fast_decoder import TypeMismatch
from lemming.kernel.files.json_documents import Document, parse_document, unreadable_error
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.plugins.capability_loader import require_fact
from lemming.libraries.conditions import predicates
from lemming.libraries.conditions.regex_search import compile_regex
from lemming.queries.case_format import KINDS, LIMIT_BYTES, Case, CaseViolation, Expectation, JudgeCheck, case_file


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
    problems += [
        Problem(message, file, *locate(text, pointer), pointer=pointer, hint=hint)
        for pointer, message, hint in _validate_case(document.value)
    ]
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
