"""Format of a gate in `config/org.json` and in resumes. Pure.

`at` is the stage and `then` the action; `tool`, `class` and `when` select content. At most one finding
(`FINDINGS`) names the content to look for. A gate without a finding concerns all selected content.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, NamedTuple

from lemming.capabilities.gates.spending_limit import AMOUNTS, Per, parse_window
from lemming.ext import describe_field
from lemming.kernel.base.entry_kinds import ToolClass
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.json_schema.schema_violations import find_schema_flaw
from lemming.kernel.base.jsontext import dump_compact, parse
from lemming.kernel.base.name_patterns import InvalidPattern, is_any_match
from lemming.kernel.base.times import DURATIONS, parse_duration
from lemming.kernel.files.fast_decoder import MAX_AMOUNT, TypeMismatch, file_key, make_field
from lemming.kernel.journal.turn_report import At, Then
from lemming.kernel.plugins.capability_loader import missing_reason
from lemming.kernel.plugins.capability_table import JUDGES
from lemming.libraries.conditions.predicates import Predicate, compile_condition, iter_fields, validate_condition
from lemming.libraries.conditions.regex_search import compile_redaction, compile_regex

GATES = "gates"
GATE_POINTER = "#/gates/"
"""In the location of a gate, between the file and its index."""
"""Name of the gates among capabilities."""
SETTLES: frozenset[Then] = frozenset({"pass", "block", "stop"})
FINDINGS = ("redact", "deny", "max_length", "schema", "dedupe", "args", "check", "models", "by")
"""Keys that select the content of a gate; a gate has at most one of them."""
UNSET: Any = None
"""Default of the selecting keys. No file can contain the value, because null is refused there."""
_FINDING_RULES = {
    "redact": "a list with a regular expression",
    "deny": "a list with a regular expression",
    "dedupe": "true",
    "args": "an object with an argument and its patterns",
    "check": "the name of a function",
    "models": "a list with a model key",
    "by": "an agent, a model key or a command",
}
CAN_REWRITE = frozenset({"redact", "max_length", "check"})
TOOL_STAGES = frozenset({"call", "result"})
SPEND_FINDINGS = frozenset({"", "check", "models"})


_ENTRY = ("kind", "tags", "payload")
_CALL = ("tool", "class", "args")
_COMMON = ("what", "text", "key", "value", "agent", "tick", "trust")
VISIBLE_FIELDS: dict[At, Collection[str]] = {
    "in": {"from", "channel", "id", *_ENTRY, "label", "tool", *_COMMON},
    "call": {*_CALL, "writes", "own", "agent", "tick", "trust", "args_trust", "args_lowest"},
    "result": {*_CALL, "success", "outcome", "output", "agent", "tick", "trust"},
    "out": {*_ENTRY, "target", "leaves", *_COMMON},
    "spend": {"agent", "call", "request", "model", "provider", "credits", "dollars", "tokens", "trust"},
}
"""Fields that conditions see at each stage; `trust` only if it is tracked."""


@dataclass(frozen=True, kw_only=True)
class Gate:
    """Rule of a gate."""

    at: At = field(
        metadata=describe_field(
            'What the gate checks: "in" (entries shown), "call", "result", "out" (entries written) or "spend".'
        )
    )
    then: Then = field(
        metadata=describe_field(
            'What the gate does: "pass", "block" and "stop" decide; after "warn", "rewrite" and "ask" '
            "the next gate is evaluated."
        )
    )
    when: dict[str, Any] | None = make_field(None, "Condition on what the gate checks; null: always.")
    tool: str | list[str] | None = make_field(
        None, 'Tools the gate applies to: names or patterns such as "mcp.*"; null: all.'
    )
    tool_class: ToolClass | list[ToolClass] | None = make_field(
        None, "Classes of tools it concerns; null: all.", key="class"
    )
    redact: list[str] = make_field(UNSET, "Regular expressions: matches are replaced by [redacted].", max_length=200)
    deny: list[str] = make_field(UNSET, "Regular expressions: the gate applies to texts with a match.", max_length=200)
    max_length: int | None = make_field(
        None, "The gate applies to texts with more characters in total; a rewrite cuts them.", ge=1
    )
    schema: dict[str, Any] | None = make_field(None, "JSON Schema: the gate applies to what does not satisfy it.")
    dedupe: bool = make_field(UNSET, "The gate applies to repetitions of the turn, or of the author.")
    args: dict[str, str | list[str]] = make_field(
        UNSET,
        'Allowed patterns of arguments ({"path": ["shared/reports/*"]}): the gate applies to a call'
        " with another value, or none.",
    )
    check: str = make_field(UNSET, "Function of a plugin, by its registered name.")
    persons: list[str] = make_field(list, 'Persons that "ask" asks; empty: all of them.')
    expires: int | str | None = make_field(
        None, 'Deadline for the answer: a number of ticks, or "2h"; after it the call is denied.'
    )
    approved: dict[str, list[str]] = make_field(
        dict, 'Agents and tools for which this gate need not ask ({"desk": ["refund"]}). Gates that block still hold.'
    )
    models: list[str] = make_field(UNSET, "Allowed model keys: the gate applies to calls of other models.")
    credits: float | None = make_field(None, "Maximum credits.", gt=0, le=MAX_AMOUNT)
    dollars: float | None = make_field(None, "Maximum dollars.", gt=0, le=MAX_AMOUNT)
    tokens: int | None = make_field(None, "Maximum tokens, prompts and answers together.", ge=1, le=int(MAX_AMOUNT))
    calls: int | None = make_field(None, "Maximum number of model calls.", ge=1, le=int(MAX_AMOUNT))
    per: Per | None = make_field(
        None, 'Scope of the limit: "turn", "request" (with its sub-requests), "agent" or "organisation".'
    )
    window: dict[str, int] | str | None = make_field(
        None, 'Period of the limit: {"ticks": 100}, "90m", "24h" or "7d"; null: since the first tick.'
    )
    by: str | dict[str, str | list[str]] = make_field(
        UNSET,
        'The judge: an agent, a model key, {"agent": name}, {"model": key} or {"command": '
        '["program", ...]}; not at "in".',
    )
    policy: str = make_field("", "Rules for the judge: a text, or a file such as ./shared/policy.md.")
    may_be_absent: bool = make_field(
        False,
        "Allow names of tools, agents, persons and models that do not exist yet. Without it an "
        "unknown name stops the run, or disables the agent.",
    )
    because: str = make_field("", "Reason that the model and people read.", max_length=500)

    def __post_init__(self) -> None:
        findings = [key for key in FINDINGS if getattr(self, key)]
        self._require_finding(findings)
        if len(findings) > 1:
            message = f'a gate must have one test, got "{findings[0]}" and "{findings[1]}"'
            raise TypeMismatch(message, at=f"/{findings[1]}", hint="write two gates")
        if self.then == "rewrite" and not CAN_REWRITE.intersection(findings):
            message = f'"rewrite" requires one of {", ".join(sorted(CAN_REWRITE))}'
            raise TypeMismatch(message, at="/then", hint='add "redact": ["..."], for example, or use "block"')
        if self.at not in TOOL_STAGES and (self.tool_patterns or self.tool_classes):
            message = f'"tool" and "class" require "at": "call" or "result", got "{self.at}"'
            raise TypeMismatch(message, at="/at", hint='write "at": "call", or remove them')
        if [] in (self.tool, self.tool_class):
            message = '"tool" and "class" must not be empty'
            raise TypeMismatch(
                message,
                at="/tool" if self.tool == [] else "/class",
                hint="name a tool or a class, or remove the key to apply the gate to all",
            )
        if self.args and self.at not in TOOL_STAGES:
            message = f'"args" requires "at": "call" or "result", got "{self.at}"'
            raise TypeMismatch(message, at="/args", hint='write "at": "call", or remove it')
        if self.dedupe and self.at in TOOL_STAGES:
            message = f'"dedupe" requires "at": "in" or "out", got "{self.at}"'
            raise TypeMismatch(message, at="/dedupe", hint='write "at": "out", or remove it')
        self._check_limit(findings)
        self._check_expires()
        if self.approved and (self.at, self.then) != ("call", "ask"):
            hint = 'write "at": "call" and "then": "ask", or remove it'
            raise TypeMismatch('"approved" requires "at": "call" and "then": "ask"', at="/approved", hint=hint)
        if self.by:
            _require_judge(self.by)
        if self.by and self.at in ("in", "spend"):
            message = f'"by" requires "at": "out", "call" or "result", got "{self.at}"'
            raise TypeMismatch(message, at="/by", hint='write "at": "out"')
        if self.policy and not self.by:
            hint = 'add "by" with the name of an agent or a model key'
            raise TypeMismatch('"policy" requires "by"', at="/policy", hint=hint)
        self._check_patterns()

    def _require_finding(self, findings: Sequence[str]) -> None:
        """Raise `TypeMismatch` if the only finding is empty: the gate would concern everything."""
        empty = next((key for key in _FINDING_RULES if getattr(self, key) is not UNSET), "")
        if empty and not findings and self.per is None:
            got = dump_compact(getattr(self, empty)).decode()
            message = f'"{empty}" must be {_FINDING_RULES[empty]}, got {got}'
            raise TypeMismatch(message, at=f"/{empty}", hint="remove the gate, or remove this key to apply it to all")

    def _check_patterns(self) -> None:
        """Raise `TypeMismatch` for an invalid regular expression, JSON Schema or condition."""
        patterns = [
            (f"/{key}/{number}", pattern, compile_pattern)
            for key, compile_pattern in (("redact", compile_redaction), ("deny", compile_regex))
            for number, pattern in enumerate(getattr(self, key) or ())
        ]
        for pointer, pattern, compile_pattern in patterns:
            if not pattern:
                message = "expected a regular expression, got an empty text (it matches everything)"
                raise TypeMismatch(message, at=pointer, hint="write a pattern")
            try:
                compile_pattern(pattern)
            except InvalidPattern as error:
                message = f"expected a regular expression, got {pattern!r}: {error}"
                hint = "put \\\\ before each of . * + ? ( ) [ ] { } ^ $ | in a plain text"
                raise TypeMismatch(message, at=pointer, hint=hint) from None
        if self.schema == {}:
            message = "expected a JSON Schema with keywords, got {} (it matches everything)"
            raise TypeMismatch(message, at="/schema", hint='add "required": ["text"], for example, or remove it')
        flaw, inside = find_schema_flaw(self.schema) if self.schema is not None else ("", "")
        if flaw:
            hint = "correct the schema; see https://json-schema.org"
            raise TypeMismatch(f"expected a JSON Schema: {flaw}", at=f"/schema{inside}", hint=hint)
        for problem in validate_condition(self.when, "/when") if self.when is not None else ():
            raise TypeMismatch(problem.message, at=problem.pointer, hint=problem.hint)

    def _check_limit(self, findings: Sequence[str]) -> None:
        """Raise `TypeMismatch` for an invalid spending limit."""
        has_amount = any(getattr(self, key) is not None for key in AMOUNTS)
        if self.at != "spend" and (has_amount or self.per or self.window or self.models):
            message = f'limits and "models" require "at": "spend", got "{self.at}"'
            raise TypeMismatch(message, at="/at", hint='write "at": "spend"')
        if self.at == "spend" and not SPEND_FINDINGS.issuperset(findings):
            hint = "remove it: it tests a text"
            raise TypeMismatch(f'"{findings[0]}" is not allowed in gates at "spend"', at=f"/{findings[0]}", hint=hint)
        if has_amount != bool(self.per) or (has_amount and findings):
            amounts = '"credits", "dollars", "tokens" and "calls"'
            add = '"per": "agent", for example' if has_amount else '"credits": 100, for example'
            if has_amount and self.per:
                hint = f"remove {findings[0]}"
                if findings[0] == "models":
                    hint += '; to limit some models only: "when": {"field": "model", "op": "is", "value": "KEY"}'
                raise TypeMismatch(f'a limit must stand without "{findings[0]}"', at=f"/{findings[0]}", hint=hint)
            raise TypeMismatch(f'a limit must have one of {amounts}, and "per"', hint=f"add {add}")
        if self.window is not None and self.per in (None, "turn"):
            message = '"window" requires a limit per request, agent or organisation'
            raise TypeMismatch(message, at="/window", hint="remove it")
        try:
            parse_window(self.window)
        except ValueError as error:
            message = f"expected a window, got {dump_compact(self.window).decode()[:60]}"
            raise TypeMismatch(message, at="/window", hint=str(error)) from None

    def _check_expires(self) -> None:
        """Raise `TypeMismatch` for an invalid expiry."""
        if isinstance(self.expires, str):
            try:
                parse_duration(self.expires)
            except UsageError as error:
                hint = f"write a number of ticks, or {DURATIONS}"
                raise TypeMismatch(error.message, at="/expires", hint=hint) from None
        elif self.expires is not None and self.expires < 1:
            message = f'"expires" must be at least 1, got {self.expires}'
            raise TypeMismatch(message, at="/expires", hint="write 1, for one tick")

    @property
    def finding_key(self) -> str:
        """Key of the gate's finding, or the empty string if the gate concerns all selected content."""
        return next((key for key in FINDINGS if getattr(self, key)), "")

    @cached_property
    def tool_patterns(self) -> Sequence[str]:
        """Names and patterns of the gate's tools. An empty sequence means all tools."""
        return _as_tuple(self.tool)

    @cached_property
    def tool_classes(self) -> Sequence[str]:
        """Tool classes of the gate. An empty sequence means all classes."""
        return _as_tuple(self.tool_class)

    @cached_property
    def predicate(self) -> Predicate:
        """Predicate of the key `when`."""
        return compile_condition(self.when) if self.when is not None else lambda _: True

    @cached_property
    def condition_fields(self) -> frozenset[str]:
        """Top-level names of the fields in the condition."""
        return frozenset(path.partition(".")[0] for path in iter_fields(self.when or {}))

    def concerns_tool(self, name: str, tool_class: str) -> bool:
        """Return True if the gate concerns a tool."""
        is_of_class = not self.tool_classes or tool_class in self.tool_classes
        return is_of_class and (not self.tool_patterns or is_any_match(name, self.tool_patterns))

    def is_approved(self, agent: str, tool: str) -> bool:
        """Return True if a person has exempted an agent's calls of a tool from this gate."""
        return tool in self.approved.get(agent, ())

    @cached_property
    def file_value(self) -> dict[str, Any]:
        """The gate as written in a file, without empty keys."""
        values = {file_key(field_info): getattr(self, field_info.name) for field_info in fields(self)}
        set_values = {key: value for key, value in values.items() if value not in ([], {}, None, False, "")}
        plain: dict[str, Any] = parse(dump_compact(set_values))
        return plain


class GateRule(NamedTuple):
    """A gate and its location in the files: `config/org.json#/gates/2`."""

    line: str
    gate: Gate

    def as_json(self) -> dict[str, Any]:
        """Return the rule in the form of a journal record."""
        return {"line": self.line, "gate": self.gate.file_value}


def _as_tuple(value: str | Sequence[str] | None) -> Sequence[str]:
    return () if value is None else (value,) if isinstance(value, str) else tuple(value)


def _require_judge(by: str | dict[str, str | list[str]]) -> None:
    """Raise `TypeMismatch` if `by` names no valid judge, or if the judges capability is missing."""
    if judges_missing := missing_reason(JUDGES):
        raise TypeMismatch(judges_missing)
    from lemming.capabilities.judges.judges_settings import parse_judge_target  # only where one is named

    try:
        parse_judge_target(by)
    except TypeMismatch as error:
        raise TypeMismatch(str(error), at="/by", hint=error.hint) from None
