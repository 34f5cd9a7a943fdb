"""Evaluation of gates, one after another. Pure except for functions of plugins."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple, TypeVar

from lemming.capabilities.gates.gate_format import SETTLES, VISIBLE_FIELDS, Gate, GateRule
from lemming.kernel.base.blocking_deadline import Deadline, WorkAbandoned, run_on_thread
from lemming.kernel.base.errors import DiskError
from lemming.kernel.base.json_schema.schema_violations import describe_violations
from lemming.kernel.base.jsontext import did_you_mean, dump_compact, parse, to_line
from lemming.kernel.base.name_patterns import is_any_match
from lemming.kernel.base.redaction.secrets import map_texts
from lemming.kernel.journal.turn_report import At, GateVerdict, Then
from lemming.kernel.messages import parse_targets
from lemming.kernel.plugins.plugin_registry import collect_items, register
from lemming.kernel.plugins.provider_errors import describe_exception
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn.turn_values import CheckFinding, CheckFunctionError
from lemming.libraries.conditions.regex_search import compile_redaction, compile_regex

REDACTED = "[redacted]"
CUT = "[cut]"
NO_VERDICTS: tuple[GateVerdict, ...] = ()
Json = dict[str, Any]
Facts = Callable[[Any], Json]


class CheckInterrupted(Exception):
    """A check was interrupted for a reason outside the check. The cause is re-raised."""


CheckRunner = Callable[[str, Json], CheckFinding | None]
"""Calls a check function by name; None means that it found nothing."""


JudgeRunner = Callable[[GateRule, Json], CheckFinding | None]
"""Asks the judge of a gate; None means that the content passes."""


class GateResult(NamedTuple):
    """Result of evaluating gates: allowed content, verdicts and the final action."""

    content: Any
    verdicts: Sequence[GateVerdict] = NO_VERDICTS
    then: Then = "pass"

    @property
    def approval_verdicts(self) -> list[GateVerdict]:
        """Verdicts with a request for a person's approval, in order."""
        return [verdict for verdict in self.verdicts if verdict.then == "ask"]

    @property
    def is_allowed(self) -> bool:
        """Return True if the content passes, possibly rewritten."""
        return self.then == "pass"

    def explain_to_model(self) -> str:
        """Return the explanation of rejected content for the model."""
        # The decisive verdict, or the first request for approval.
        verdict = next((verdict for verdict in self.verdicts if verdict.then == self.then), self.verdicts[-1])
        reason = f": {verdict.why}" if verdict.why else ""
        return f"{OUTCOME_PHRASES[self.then]}{reason} ({verdict.line})"

    def apply_to_result(self, result: ToolResult) -> ToolResult:
        """Return the result of a call as gates leave it."""
        stops = self.then == "stop"
        return replace(
            result,
            output=self.content if self.is_allowed else f"[withheld: {self.explain_to_model()}]",
            verdicts=(*result.verdicts, *self.verdicts),
            on_error="stop" if stops else result.on_error,
            success=result.success and not stops,
        )


OUTCOME_PHRASES: dict[Then, str] = {
    "block": "a gate does not let it pass",
    "ask": "a gate wants a person's approval",
    "stop": "a gate ends the turn",
}


def reject_functions(name: str, fields: Json) -> CheckFinding | None:
    """Raise LookupError because no check functions are available."""
    raise LookupError(f'no function "{name}" can be asked here')


def reject_judges(rule: GateRule, fields: Json) -> CheckFinding | None:
    """Raise CheckFunctionError because no judge was asked."""
    raise CheckFunctionError("its judge gave no verdict; `lemming tick` shows why")


def rules_at_stage(rules: Iterable[GateRule], at: At) -> tuple[GateRule, ...]:
    """Return the gates of a stage."""
    return tuple(rule for rule in rules if rule.gate.at == at)


def evaluate_gates(
    rules: Iterable[GateRule],
    content: Any,
    facts: Facts,
    *,
    about: str,
    earlier: Collection[str] = (),
    check: CheckRunner = reject_functions,
    judge: JudgeRunner = reject_judges,
) -> GateResult:
    """Evaluate gates on content, one after another, until a gate decides.

    `facts` builds the fields for conditions from the content, possibly rewritten by an earlier gate.
    `earlier` holds digests of earlier content (`content_digest`). A gate with an error blocks. A request for
    approval is passed on to later gates, so no person is asked about content rejected by a later gate.

    Raises: DiskError if the disk cannot resolve a path.
    """
    verdicts: list[GateVerdict] = []
    for rule in rules:
        gate = rule.gate
        make_verdict = partial(GateVerdict, rule.line, gate.at)
        try:
            finding = _evaluate_gate(rule, content, facts, earlier, check, judge)
        except CheckInterrupted as stopped:
            raise stopped.__cause__ or stopped from None
        except DiskError:  # the disk gave no answer: the run ends, and the next one looks again
            raise
        except Exception as error:  # noqa: BLE001 - a broken gate blocks
            reason = error if isinstance(error, CheckFunctionError) else describe_exception(error)
            return _stopped_result(content, verdicts, make_verdict("block", about, f"the gate broke: {reason}"))
        if finding is None:
            continue
        if gate.then == "pass":
            break
        if gate.then == "rewrite":
            content = _merge_replacement(finding.content, content, facts) if gate.check else finding.content
        verdict_of_gate = make_verdict(gate.then, about, gate.because or finding.why)
        if gate.then in SETTLES:
            return _stopped_result(content, verdicts, verdict_of_gate)
        verdicts.append(verdict_of_gate)
    return GateResult(content, verdicts, "ask" if any(verdict.then == "ask" for verdict in verdicts) else "pass")


def _merge_replacement(replacement: Any, content: Any, facts: Facts) -> Any:
    """Return the replacement of a check function for a call.

    Values equal to the visible arguments stay as the call wrote them.
    """
    visible_args = facts(content).get("args")
    if not (isinstance(replacement, dict) and isinstance(content, dict) and isinstance(visible_args, dict)):
        return replacement
    # The function saw resolved paths: an unchanged argument keeps the spelling of the call.
    merged = {}
    for key, value in replacement.items():
        is_unchanged = key in visible_args and value == visible_args[key]
        if not is_unchanged:
            merged[key] = value
        elif key in content:  # otherwise the function saw the default of the argument
            merged[key] = content[key]
    return merged


def _stopped_result(content: Any, verdicts: Iterable[GateVerdict], decision: GateVerdict) -> GateResult:
    """Return the result for rejected content, without the approval requests of earlier gates."""
    return GateResult(content, [*(verdict for verdict in verdicts if verdict.then != "ask"), decision], decision.then)


def require_known_fields(gate: Gate, fields: Json) -> None:
    """Raise `LookupError` if a condition reads an unavailable field: the gate would never act."""
    if unknown_field := min(gate.condition_fields.difference(VISIBLE_FIELDS[gate.at]), default=""):
        raise LookupError(f'a gate at "{gate.at}" does not see "{unknown_field}"')
    looks_at_trust = not gate.condition_fields.isdisjoint(("trust", "args_trust", "args_lowest"))
    if looks_at_trust and "trust" not in fields and fields.get("what") != "file":
        raise LookupError('nobody tracks trust: "trust": {} in config/org.json')


def content_digest(content: Any) -> str:
    """Return the SHA-256 digest of a content."""
    return sha256(dump_compact(content)).hexdigest()


def iter_texts(content: Any) -> Iterator[str]:
    """Yield the texts in a JSON value, keys included."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict):
        for key, value in content.items():
            yield str(key)
            yield from iter_texts(value)
    elif isinstance(content, (list, tuple)):
        for item in content:
            yield from iter_texts(item)
    elif content is not None:
        yield to_line(content)


def _evaluate_gate(
    rule: GateRule, content: Any, facts: Facts, earlier: Collection[str], check: CheckRunner, judge: JudgeRunner
) -> CheckFinding | None:
    gate = rule.gate
    fields = facts(content)
    if (gate.tool_patterns or gate.tool_classes) and not gate.concerns_tool(fields["tool"], fields["class"]):
        return None
    require_known_fields(gate, fields)
    if not _condition_holds(gate, fields) or (gate.approved and gate.is_approved(fields["agent"], fields["tool"])):
        return None
    is_call = gate.at == "call"
    match gate.finding_key:
        case "":
            return CheckFinding("")
        case "redact":
            rewritten = redact(gate.redact, content)
            if rewritten != content:
                return CheckFinding("something in it is redacted", rewritten)
            # The resolved paths too: no spelling of a path must get it past a pattern.
            return _find_denied(gate.redact, fields["args"]) if is_call and gate.then != "rewrite" else None
        case "deny":
            # As the call spells its paths, and as they are opened: neither must hide a pattern.
            return _find_denied(gate.deny, [content, fields["args"]] if is_call else content)
        case "max_length":
            return _find_too_long(gate, content)
        case "schema":
            errors = describe_violations(gate.schema or {}, fields["args"] if is_call else content)
            return CheckFinding(f"it is not what is wanted: {'; '.join(errors)}"[:500]) if errors else None
        case "dedupe":
            return CheckFinding("it is the same as before") if content_digest(content) in earlier else None
        case "args":
            return _find_disallowed_argument(gate, fields["args"], content if is_call else fields["args"])
        case "check":
            return check(gate.check, fields)
        case "by":
            return judge(rule, fields)
    raise AssertionError(f"a finding without a way to find it: {gate.finding_key}")


def _condition_holds(gate: Gate, fields: Json) -> bool:
    """Return True if the condition of a gate holds.

    For an entry with several targets, one match is enough, but a gate with "pass" must match all targets.
    Targets are compared as parsed by the engine, so the spelling of a name cannot get an entry past a gate.
    """
    if gate.at != "out" or fields.get("what") != "entry" or gate.condition_fields.isdisjoint(("target", "payload")):
        return gate.predicate(fields)
    payload, names = fields["payload"], sorted(parse_targets(fields["payload"]))
    results = [gate.predicate({**fields, "target": name, "payload": {**payload, "target": name}}) for name in names]
    if gate.then == "pass" and names:
        return all(results)
    return any(results) or gate.predicate(fields)


def redact(patterns: Iterable[str], content: Any) -> Any:
    """Return a value with all matches of the patterns redacted."""
    for pattern in patterns:
        content = map_texts(content, partial(compile_redaction(pattern).sub, replacement=REDACTED))
    return content


def _find_denied(patterns: Iterable[str], content: Any) -> CheckFinding | None:
    texts = [*iter_texts(content)]
    for pattern in patterns:
        if any(compile_regex(pattern).search(text) for text in texts):
            return CheckFinding(f"something in it fits {pattern!r}"[:300])
    return None


def _find_too_long(gate: Gate, content: Any) -> CheckFinding | None:
    """Return a finding if the texts of a value exceed the allowed number of characters.

    A rewrite keeps the first texts whole, and keys and numbers unchanged.

    Raises: ValueError if keys and numbers alone are too long for a rewrite.
    """
    max_chars, length = gate.max_length or 1, sum(map(len, iter_texts(content)))
    if length <= max_chars:
        return None
    finding = CheckFinding(f"it has {length} characters, {max_chars} are allowed")
    if gate.then != "rewrite":
        return finding
    room = max_chars - (length - sum(map(len, _iter_values(content))))
    if room < 0:
        raise ValueError(f"without its texts it has {max_chars - room} characters, {max_chars} are allowed")

    def truncate_to_room(text: str) -> str:
        nonlocal room
        if len(text) > room:  # with a mark if there is room
            text = f"{text[: room - len(CUT)]}{CUT}" if room > 2 * len(CUT) else text[:room]
        room -= len(text)
        return text

    return finding._replace(content=_map_texts(content, truncate_to_room))


def _iter_values(content: Any) -> Iterator[str]:
    """Yield the texts in a JSON value except keys."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, (dict, list, tuple)):
        for item in content.values() if isinstance(content, dict) else content:
            yield from _iter_values(item)


def _map_texts(content: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with its texts changed and its keys unchanged."""
    if isinstance(content, dict):
        return {key: _map_texts(value, change) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_map_texts(item, change) for item in content]
    return change(content) if isinstance(content, str) else content


def _find_disallowed_argument(gate: Gate, args: Any, call_args: Any) -> CheckFinding | None:
    """Return a finding for the first argument with a disallowed value. A missing argument counts as the empty text."""
    for name, patterns in (gate.args or {}).items():
        allowed = [patterns] if isinstance(patterns, str) else patterns
        # `args` holds defaults, but an argument that the call left out counts as missing.
        value = args.get(name, "") if isinstance(args, dict) and name in call_args else ""
        text = value if isinstance(value, str) else to_line(value)
        if not is_any_match(text, allowed):
            return CheckFinding(f'argument "{name}" is {text[:80]!r}; allowed: {", ".join(allowed)}'[:500])
    return None


DEADLINE_S = 10.0
CheckFunction = Callable[[Json], Any]
F = TypeVar("F", bound=CheckFunction)


def check(function: F) -> F:
    """Register a function for gates under its own name. For modules that are plugins.

    The function receives the fields seen by the gate (docs/gates.md). The function returns None without
    objection, a text with the finding, or `CheckFinding(reason, content)` with the replacement for a rewrite.
    """
    name = function.__name__
    register("check", name, function, defined_by=function, shipped={})
    return function


def load_checks(plugins: tuple[str, ...]) -> Mapping[str, CheckFunction]:
    """Return the check functions of these plugins by name."""
    return collect_items("check", plugins, dict)


def make_check_runner(plugins: tuple[str, ...]) -> CheckRunner:
    """Return the callable for running check functions of gates. Each function has ten seconds."""

    def run_check(name: str, fields: Json) -> CheckFinding | None:
        functions = load_checks(plugins)
        if name not in functions:
            hint = did_you_mean(name, [*functions]) or "@check in a plugin registers one"
            raise CheckFunctionError(f'there is no function "{name}": {hint}')
        fields_copy = parse(dump_compact(fields))  # a copy that the function may change
        try:
            # Code of a plugin may hang: its thread is abandoned, and the gate blocks.
            deadline = Deadline(DEADLINE_S)
            answer = run_on_thread(lambda: functions[name](fields_copy), deadline, name=f"lemming-gate-{name}")
        except WorkAbandoned:
            raise CheckFunctionError(f"{name} took longer than {DEADLINE_S:g} s") from None
        except (Exception, SystemExit) as error:
            raise CheckFunctionError(describe_exception(error)) from error
        if answer is None or isinstance(answer, CheckFinding):
            return answer
        if isinstance(answer, str):
            return CheckFinding(answer)
        raise CheckFunctionError(f"{name} returned {type(answer).__name__}, not None, a text or CheckFinding")

    return run_check
