"""What a gate is, as `config/org.json` and resumes write it. Pure.

`at` and `then` say where it stands and what it does; `tool`, `class` and `when` what it concerns; and at most
one finding (`FINDINGS`) what it looks for there. Without one it concerns all that it matches.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, NamedTuple

from lemming.capabilities.conditions.expressions import expression
from lemming.capabilities.conditions.when import Predicate, fields_in, predicate, problems_of
from lemming.capabilities.gates.limit import AMOUNTS, Per, window_of
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.json_schema.violations import flaw_of
from lemming.kernel.base.jsontext import compact, parse
from lemming.kernel.base.kinds import ToolClass
from lemming.kernel.base.patterns import NoExpression, is_among
from lemming.kernel.base.times.spoken import DURATIONS, parse_duration
from lemming.kernel.files.fitting import LARGEST_AMOUNT, Misfit, about, key_of, keyed
from lemming.kernel.journal.verdicts import At, Then
from lemming.kernel.plugins.capabilities import why_missing
from lemming.kernel.plugins.shipped import JUDGES

GATES = "gates"
"""What they are called where it is by capability."""
SETTLES: frozenset[Then] = frozenset({"pass", "block", "stop"})
FINDINGS = ("redact", "deny", "max_length", "schema", "dedupe", "args", "check", "models", "by")
"""The keys that say what a gate looks for: one of them, or none."""
NOT_SAID: Any = None
"""The default of the keys that say what a gate looks for. No file can have it: there, null is refused."""
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
OF_TOOLS = frozenset({"call", "result"})
OF_SPENDING = frozenset({"", "check", "models"})


_ENTRY = ("kind", "tags", "payload")
_CALL = ("tool", "class", "args")
_COMMON = ("what", "text", "key", "value", "agent", "tick", "trust")
SEEN: dict[At, Collection[str]] = {
    "in": {"from", "channel", "id", *_ENTRY, "label", "tool", *_COMMON},
    "call": {*_CALL, "writes", "own", "agent", "tick", "trust", "args_trust", "args_lowest"},
    "result": {*_CALL, "success", "outcome", "output", "agent", "tick", "trust"},
    "out": {*_ENTRY, "target", "leaves", *_COMMON},
    "spend": {"agent", "call", "request", "model", "provider", "credits", "dollars", "tokens", "trust"},
}
"""The fields that conditions see at each place; `trust` where it is tracked."""


@dataclass(frozen=True, kw_only=True)
class Gate:
    """One rule."""

    at: At = field(metadata=about('Where it stands: "in", "call", "result", "out" or "spend".'))
    then: Then = field(
        metadata=about(
            'What it does: "pass", "block" and "stop" settle it, "warn", "rewrite" and "ask" let the next '
            "gate look."
        )
    )
    when: dict[str, Any] | None = field(
        default=None, metadata=about("A condition over what it looks at; null: always.")
    )
    tool: str | list[str] | None = field(
        default=None, metadata=about('Tools it concerns: names or patterns such as "mcp.*"; null: all.')
    )
    tool_class: ToolClass | list[ToolClass] | None = field(
        default=None, metadata=keyed("class", "Classes of tools it concerns; null: all.")
    )
    redact: list[str] = field(
        default=NOT_SAID,
        metadata=about("Regular expressions: what they find is replaced by [redacted].", max_length=200),
    )
    deny: list[str] = field(
        default=NOT_SAID,
        metadata=about("Regular expressions: texts in which one finds something.", max_length=200),
    )
    max_length: int | None = field(
        default=None, metadata=about("Texts of more characters in all, which a rewrite cuts.", ge=1)
    )
    schema: dict[str, Any] | None = field(
        default=None, metadata=about("A JSON Schema: what does not satisfy it.")
    )
    dedupe: bool = field(
        default=NOT_SAID, metadata=about("What is the same as something the turn, or the author, had before.")
    )
    args: dict[str, str | list[str]] = field(
        default=NOT_SAID,
        metadata=about(
            'Arguments with the patterns they may have ({"path": ["shared/reports/*"]}): a call in which one '
            "has another, or none."
        ),
    )
    check: str = field(default=NOT_SAID, metadata=about("A function of a plugin, by the name it registered."))
    persons: list[str] = field(
        default_factory=list, metadata=about('Who is asked by "ask"; none: all persons who can be.')
    )
    expires: int | str | None = field(
        default=None,
        metadata=about('How long an answer is waited for: so many ticks, or "2h"; then it is no.'),
    )
    approved: dict[str, list[str]] = field(
        default_factory=dict,
        metadata=about(
            'Agents, each with the tools for whose calls this gate need not ask ({"desk": ["refund"]}); all '
            "others, and gates that block, hold."
        ),
    )
    models: list[str] = field(
        default=NOT_SAID, metadata=about("Model keys that may be asked: a question to any other.")
    )
    credits: float | None = field(
        default=None, metadata=about("So many credits may be spent.", gt=0, le=LARGEST_AMOUNT)
    )
    dollars: float | None = field(
        default=None, metadata=about("So many dollars may be spent.", gt=0, le=LARGEST_AMOUNT)
    )
    tokens: int | None = field(
        default=None,
        metadata=about("So many tokens, of questions and answers together.", ge=1, le=int(LARGEST_AMOUNT)),
    )
    calls: int | None = field(
        default=None, metadata=about("So many questions may be asked.", ge=1, le=int(LARGEST_AMOUNT))
    )
    per: Per | None = field(
        default=None,
        metadata=about(
            'What the limit adds up: "turn", "request" (with all that was asked for it), "agent" or '
            '"organisation".'
        ),
    )
    window: dict[str, int] | str | None = field(
        default=None,
        metadata=about(
            'How far back it looks: {"ticks": 100}, "90m", "24h" or "7d"; null: to the first tick.'
        ),
    )
    by: str | dict[str, str | list[str]] = field(
        default=NOT_SAID,
        metadata=about(
            'Who judges it: an agent, a model key, {"agent": name}, {"model": key} or {"command": '
            '["program", ...]}; not at "in".'
        ),
    )
    policy: str = field(
        default="", metadata=about("What it is judged by: a text, or a file: ./shared/policy.md.")
    )
    may_be_absent: bool = field(
        default=False,
        metadata=about(
            "Whether tools, agents, persons and models that it names may be absent: for what comes later. "
            "Without it a name of nothing stops the run, or takes the agent out."
        ),
    )
    because: str = field(default="", metadata=about("What the model and people are told.", max_length=500))

    def __post_init__(self) -> None:
        found = [key for key in FINDINGS if getattr(self, key)]
        self._require_finding(found)
        if len(found) > 1:
            message = f'a gate must look for one thing, got "{found[0]}" and "{found[1]}"'
            raise Misfit(message, at=f"/{found[1]}", hint="write two gates")
        if self.then == "rewrite" and not CAN_REWRITE.intersection(found):
            message = f'"rewrite" needs one of {", ".join(sorted(CAN_REWRITE))}: what is it to put there?'
            raise Misfit(message, at="/then", hint='add "redact": ["..."], say, or let it "block"')
        if self.at not in OF_TOOLS and (self.tools or self.classes):
            message = f'"tool" and "class" are for gates at "call" and "result", not at "{self.at}"'
            raise Misfit(message, at="/at", hint='write "at": "call", or take them out')
        if [] in (self.tool, self.tool_class):
            message = '"tool" and "class" name at least one; a gate that concerns all has neither'
            raise Misfit(
                message, at="/tool" if self.tool == [] else "/class", hint="name one, or take it out"
            )
        if self.args and self.at not in OF_TOOLS:
            message = f'"args" is for gates at "call" and "result", not at "{self.at}"'
            raise Misfit(message, at="/args", hint='write "at": "call", or take it out')
        if self.dedupe and self.at in OF_TOOLS:
            message = f'"dedupe" is for gates at "in" and "out", not at "{self.at}"'
            raise Misfit(message, at="/dedupe", hint='write "at": "out", or take it out')
        self._check_limit(found)
        self._check_expires()
        if self.approved and (self.at, self.then) != ("call", "ask"):
            hint = 'write "at": "call" and "then": "ask", or take it out'
            raise Misfit('"approved" is for gates at "call" that "ask"', at="/approved", hint=hint)
        if self.by:
            _require_judge(self.by)
        if self.by and self.at in ("in", "spend"):
            message = '"by" is not for gates at "in" and "spend": no model is asked before the turn begins'
            raise Misfit(message, at="/by", hint='write "at": "out"')
        if self.policy and not self.by:
            hint = 'add "by": the name of an agent or a model key that judges'
            raise Misfit('"policy" is for gates with "by": whom is it for?', at="/policy", hint=hint)
        self._check_patterns()

    def _require_finding(self, found: Sequence[str]) -> None:
        """Raise `Misfit` for a gate whose only finding finds nothing: it would concern everything instead."""
        empty = next((key for key in _FINDING_RULES if getattr(self, key) is not NOT_SAID), "")
        if empty and not found and self.per is None:
            got = compact(getattr(self, empty)).decode()
            message = f'"{empty}" must be {_FINDING_RULES[empty]}, got {got}'
            raise Misfit(message, at=f"/{empty}", hint="take the gate out, or this key: then it concerns all")

    def _check_patterns(self) -> None:
        """Raise `Misfit` for an expression, a schema or a condition that is none."""
        patterns = [
            (f"/{key}/{number}", it)
            for key in ("redact", "deny")
            for number, it in enumerate(getattr(self, key) or ())
        ]
        for place, pattern in patterns:
            if not pattern:
                message = "expected a regular expression, found an empty text, which fits everything"
                raise Misfit(message, at=place, hint="write what is looked for")
            try:
                expression(pattern)
            except NoExpression as error:
                hint = "a plain text has \\\\ before each of . * + ? ( ) [ ] { } ^ $ |"
                raise Misfit(f"no regular expression: {pattern!r}: {error}", at=place, hint=hint) from None
        if self.schema == {}:
            message = "expected a JSON Schema that wants something, found {}: everything satisfies it"
            raise Misfit(message, at="/schema", hint='add "required": ["text"], say, or take it out')
        flaw, inside = flaw_of(self.schema) if self.schema is not None else ("", "")
        if flaw:
            hint = "keywords and types of JSON Schema: https://json-schema.org"
            raise Misfit(f"no JSON Schema: {flaw}", at=f"/schema{inside}", hint=hint)
        for wrong in problems_of(self.when, "/when") if self.when is not None else ():
            raise Misfit(wrong.message, at=wrong.pointer, hint=wrong.hint)

    def _check_limit(self, found: Sequence[str]) -> None:
        """Raise `Misfit` for a limit that is none."""
        has_amount = any(getattr(self, key) is not None for key in AMOUNTS)
        if self.at != "spend" and (has_amount or self.per or self.window or self.models):
            message = f'limits and "models" are for gates at "spend", not at "{self.at}"'
            raise Misfit(message, at="/at", hint='write "at": "spend"')
        if self.at == "spend" and not OF_SPENDING.issuperset(found):
            hint = "it is about a text: take it out"
            raise Misfit(f'"{found[0]}" is not for gates at "spend"', at=f"/{found[0]}", hint=hint)
        if has_amount != bool(self.per) or (has_amount and found):
            amounts = '"credits", "dollars", "tokens" and "calls"'
            add = '"per": "agent", say' if has_amount else '"credits": 100, say'
            hint = f"take {found[0]} out" if has_amount and found else f"add {add}"
            raise Misfit(f'a limit is one of {amounts}, with "per", and nothing else', hint=hint)
        if self.window is not None and self.per in (None, "turn"):
            message = '"window" is for limits per request, agent or organisation'
            raise Misfit(message, at="/window", hint="take it out")
        try:
            window_of(self.window)
        except ValueError as error:
            message = f"expected a window, found {compact(self.window).decode()[:60]}"
            raise Misfit(message, at="/window", hint=str(error)) from None

    def _check_expires(self) -> None:
        """Raise `Misfit` for a time that is none."""
        if isinstance(self.expires, str):
            try:
                parse_duration(self.expires)
            except UsageError as error:
                hint = f"write a number of ticks, or {DURATIONS}"
                raise Misfit(error.message, at="/expires", hint=hint) from None
        elif self.expires is not None and self.expires < 1:
            message = f"expected a number of at least 1, found {self.expires}"
            raise Misfit(message, at="/expires", hint="write 1, for one tick")

    @property
    def finding(self) -> str:
        """The key that says what it looks for; empty when it concerns all that it matches."""
        return next((key for key in FINDINGS if getattr(self, key)), "")

    @cached_property
    def tools(self) -> Sequence[str]:
        """The names and patterns of the tools that it concerns; none: all."""
        return _listed(self.tool)

    @cached_property
    def classes(self) -> Sequence[str]:
        """The classes of the tools that it concerns; none: all."""
        return _listed(self.tool_class)

    @cached_property
    def condition(self) -> Predicate:
        """Its `when` as a function."""
        return predicate(self.when) if self.when is not None else lambda _: True

    @cached_property
    def fields(self) -> frozenset[str]:
        """The fields that its condition looks at, without what stands below them."""
        return frozenset(it.partition(".")[0] for it in fields_in(self.when)) if self.when else frozenset()

    def concerns_tool(self, name: str, tool_class: str) -> bool:
        """Return whether a tool is one of those that it concerns."""
        is_of_class = not self.classes or tool_class in self.classes
        return is_of_class and (not self.tools or is_among(name, self.tools))

    def is_approved(self, agent: str, tool: str) -> bool:
        """Return whether a person has said that it need not ask about an agent's calls of a tool."""
        return tool in self.approved.get(agent, ())

    @cached_property
    def plain(self) -> dict[str, Any]:
        """The gate as a file writes it, without the keys that say nothing."""
        told = {key_of(it): getattr(self, it.name) for it in fields(self)}
        kept = {key: value for key, value in told.items() if value not in ([], {}, None, False, "")}
        written: dict[str, Any] = parse(compact(kept))
        return written


class Rule(NamedTuple):
    """A gate, and the line that says it: `config/org.json#/gates/2`."""

    line: str
    gate: Gate

    def as_json(self) -> dict[str, Any]:
        """Return it as a journal holds it."""
        return {"line": self.line, "gate": self.gate.plain}


def _listed(value: str | Sequence[str] | None) -> Sequence[str]:
    return () if value is None else (value,) if isinstance(value, str) else tuple(value)


def _require_judge(by: str | dict[str, str | list[str]]) -> None:
    """Raise `Misfit` for what names nobody, and where nobody here judges."""
    if why := why_missing(JUDGES):
        raise Misfit(why)
    from lemming.capabilities.judges.settings import judge_named  # only where one is named

    try:
        judge_named(by)
    except Misfit as error:
        raise Misfit(str(error), at="/by", hint=error.hint) from None
