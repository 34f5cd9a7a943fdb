"""Gates at work: what is to pass is looked at by one after another. Pure but for functions of plugins."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple

from lemming.capabilities.conditions.expressions import expression
from lemming.capabilities.gates.format import SEEN, SETTLES, Gate, Rule
from lemming.kernel.base.errors import DiskError
from lemming.kernel.base.json_schema.violations import misfits
from lemming.kernel.base.jsontext import compact, to_line
from lemming.kernel.base.patterns import is_among
from lemming.kernel.base.redaction.rewriting import with_texts
from lemming.kernel.journal.verdicts import At, GateVerdict, Then
from lemming.kernel.messages import targets_in
from lemming.kernel.plugins.errors import words_of
from lemming.kernel.turn.places import Found, FunctionBroke

REDACTED = "[redacted]"
CUT = "[cut]"
NO_VERDICTS: tuple[GateVerdict, ...] = ()
Json = dict[str, Any]
Facts = Callable[[Any], Json]


class AskingStopped(Exception):
    """Asking came to no end, and not by the fault of what was asked; its cause is let through."""


Check = Callable[[str, Json], Found | None]
"""Asks a function by name; None: it found nothing."""


AskedJudge = Callable[[Rule, Json], Found | None]
"""Asks the judge of a gate; None: it passes."""


class Looked(NamedTuple):
    """What came of looking: what passes, what was said, and what settled it."""

    content: Any
    verdicts: Sequence[GateVerdict] = NO_VERDICTS
    then: Then = "pass"

    @property
    def last(self) -> GateVerdict:
        """The verdict that settled it, where that was not to pass: of several that ask, the first."""
        return next((it for it in self.verdicts if it.then == self.then), self.verdicts[-1])

    @property
    def asks(self) -> list[GateVerdict]:
        """The verdicts that want a person's approval, in order."""
        return [it for it in self.verdicts if it.then == "ask"]

    @property
    def passes(self) -> bool:
        """Whether it passes, rewritten perhaps."""
        return self.then == "pass"

    def told(self) -> str:
        """Return what a model is told of what does not pass."""
        return f"{WORDS[self.then]}{f': {self.last.why}' if self.last.why else ''} ({self.last.line})"


WORDS: dict[Then, str] = {
    "block": "a gate does not let it pass",
    "ask": "a gate wants a person's approval",
    "stop": "a gate ends the turn",
}


def no_functions(name: str, seen: Json) -> Found | None:
    """Raise, where no function can be asked."""
    raise LookupError(f'no function "{name}" can be asked here')


def nobody_judged(rule: Rule, seen: Json) -> Found | None:
    """Raise, where no judge was asked."""
    raise FunctionBroke("its judge gave no verdict")


def rules_at(rules: Iterable[Rule], at: At) -> tuple[Rule, ...]:
    """Return those of the gates that stand at one place."""
    return tuple(rule for rule in rules if rule.gate.at == at)


def look(
    rules: Iterable[Rule],
    content: Any,
    facts: Facts,
    *,
    about: str,
    earlier: Collection[str] = (),
    check: Check = no_functions,
    judge: AskedJudge = nobody_judged,
) -> Looked:
    """Have gates look at something, one after another, until one settles it.

    `facts` tells what conditions see of the content, which a gate before may have rewritten. `earlier` holds
    the digests of what was there before (`digest_of`). A gate that breaks blocks. What a gate asks about goes
    on to those behind it, so that nobody is asked about what one of them does not let pass. Raises
    `DiskError` where the disk does not say what a path leads to.
    """
    verdicts: list[GateVerdict] = []
    for rule in rules:
        gate = rule.gate
        say = partial(GateVerdict, rule.line, gate.at)
        try:
            found = _finding(rule, content, facts, earlier, check, judge)
        except AskingStopped as stopped:
            raise stopped.__cause__ or stopped from None
        except DiskError:  # nobody knows what is there: the run ends, and the next one looks again
            raise
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a gate, it does not open
            why = error if isinstance(error, FunctionBroke) else words_of(error)
            return _ended(content, verdicts, say("block", about, f"the gate broke: {why}"))
        if found is None:
            continue
        if gate.then == "pass":
            break
        if gate.then == "rewrite":
            content = _put(found.content, content, facts) if gate.check else found.content
        said = say(gate.then, about, gate.because or found.why)
        if gate.then in SETTLES:
            return _ended(content, verdicts, said)
        verdicts.append(said)
    return Looked(content, verdicts, "ask" if any(it.then == "ask" for it in verdicts) else "pass")


def _put(made: Any, content: Any, facts: Facts) -> Any:
    """Return what a function makes of a call: what it gives back as it saw it stays as it was."""
    seen = facts(content).get("args")
    if not (isinstance(made, dict) and isinstance(content, dict) and isinstance(seen, dict)):
        return made
    # A path was seen by the place that is opened: unless it was changed it goes on as it was spelled.
    kept = {key: it for key, it in content.items() if key in made and made[key] == seen.get(key)}
    left_out = {key for key in seen if key not in content}  # it saw their defaults
    return {**{key: it for key, it in made.items() if key not in left_out or it != seen[key]}, **kept}


def _ended(content: Any, verdicts: Iterable[GateVerdict], last: GateVerdict) -> Looked:
    """Return what a gate did not let pass; what those before it would have asked, nobody is asked."""
    return Looked(content, [*(it for it in verdicts if it.then != "ask"), last], last.then)


def require_seen(gate: Gate, seen: Json) -> None:
    """Raise `LookupError` for a gate whose condition looks at what is never there: it would never speak."""
    if unseen := min(gate.fields.difference(SEEN[gate.at]), default=""):
        raise LookupError(f'a gate at "{gate.at}" does not see "{unseen}"')
    looks_at_trust = not gate.fields.isdisjoint(("trust", "args_trust", "args_lowest"))
    if looks_at_trust and "trust" not in seen and seen.get("what") != "file":
        raise LookupError('nobody tracks trust: "trust": {} in config/org.json')


def digest_of(content: Any) -> str:
    """Return what tells a content from others."""
    return sha256(compact(content)).hexdigest()


def texts_in(content: Any) -> Iterator[str]:
    """Yield the texts in a JSON value, keys included."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict):
        for key, value in content.items():
            yield str(key)
            yield from texts_in(value)
    elif isinstance(content, (list, tuple)):
        for item in content:
            yield from texts_in(item)
    elif content is not None:
        yield to_line(content)


def _finding(
    rule: Rule, content: Any, facts: Facts, earlier: Collection[str], check: Check, judge: AskedJudge
) -> Found | None:
    gate = rule.gate
    seen = facts(content)
    if (gate.tools or gate.classes) and not gate.concerns_tool(seen["tool"], seen["class"]):
        return None
    require_seen(gate, seen)
    if not _holds(gate, seen) or (gate.approved and gate.is_approved(seen["agent"], seen["tool"])):
        return None
    is_call = gate.at == "call"
    match gate.finding:
        case "":
            return Found("")
        case "redact":
            found = _redacted(gate.redact, content)
            # By the place that is opened, too: how a path is spelled must not get it past a pattern.
            if found is None and is_call and gate.then != "rewrite":
                return _denied(gate.redact, seen["args"])
            return found
        case "deny":
            return _denied(gate.deny, [content, seen["args"]] if is_call else content)
        case "max_length":
            return _too_long(gate, content)
        case "schema":
            wrong = misfits(gate.schema or {}, seen["args"] if is_call else content)
            return Found(f"it is not what is wanted: {'; '.join(wrong)}"[:500]) if wrong else None
        case "dedupe":
            return Found("it is the same as before") if digest_of(content) in earlier else None
        case "args":
            return _unfitting(gate, seen["args"], content if is_call else seen["args"])
        case "check":
            return check(gate.check, seen)
        case "by":
            return judge(rule, seen)
    raise AssertionError(f"a finding without a way to find it: {gate.finding}")


def _holds(gate: Gate, seen: Json) -> bool:
    """Return whether a gate's condition holds; of an entry to several, for one of them, and to pass, for all.

    A target is compared as the engine reads it: how a name is spelled must not get an entry past a gate.
    """
    if gate.at != "out" or seen.get("what") != "entry" or gate.fields.isdisjoint(("target", "payload")):
        return gate.condition(seen)
    names = sorted(targets_in(seen["payload"]))
    each = [
        gate.condition({**seen, "target": name, "payload": {**seen["payload"], "target": name}})
        for name in names
    ]
    if gate.then == "pass" and names:
        return all(each)
    return any(each) or gate.condition(seen)


def redacted(patterns: Iterable[str], content: Any) -> Any:
    """Return a value without what these patterns find in its texts."""
    for pattern in patterns:
        content = with_texts(content, partial(expression(pattern).replaced, by=REDACTED))
    return content


def _redacted(patterns: Iterable[str], content: Any) -> Found | None:
    rewritten = redacted(patterns, content)
    return Found("something in it is redacted", rewritten) if rewritten != content else None


def _denied(patterns: Iterable[str], content: Any) -> Found | None:
    texts = [*texts_in(content)]
    for pattern in patterns:
        if any(expression(pattern).finds(text) for text in texts):
            return Found(f"something in it fits {pattern!r}"[:300])
    return None


def _too_long(gate: Gate, content: Any) -> Found | None:
    """Return a value whose texts have as many characters in all as may be, where they have more.

    The first stay whole, and keys and numbers as they are: `ValueError` where they alone are too many for a
    rewrite.
    """
    most, length = gate.max_length or 1, sum(map(len, texts_in(content)))
    if length <= most:
        return None
    found = Found(f"it has {length} characters, {most} are allowed")
    if gate.then != "rewrite":
        return found
    room = most - (length - sum(map(len, _values_in(content))))
    if room < 0:
        raise ValueError(f"without its texts it has {most - room} characters, {most} are allowed")

    def cut(text: str) -> str:
        nonlocal room
        kept = text if len(text) <= room else _cut(text, room)
        room -= len(kept)
        return kept

    return found._replace(content=_with_values(content, cut))


def _cut(text: str, most: int) -> str:
    """Return the beginning of a text, marked as such where there is room for it."""
    return f"{text[: most - len(CUT)]}{CUT}" if most > 2 * len(CUT) else text[:most]


def _values_in(content: Any) -> Iterator[str]:
    """Yield the texts in a JSON value that are no keys."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, (dict, list, tuple)):
        for item in content.values() if isinstance(content, dict) else content:
            yield from _values_in(item)


def _with_values(content: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with its texts changed, keys left as they are."""
    if isinstance(content, dict):
        return {key: _with_values(value, change) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_with_values(item, change) for item in content]
    return change(content) if isinstance(content, str) else content


def _unfitting(gate: Gate, args: Any, said: Any) -> Found | None:
    """Return which argument has no value that is allowed; one that is not there has the empty text."""
    for name, patterns in (gate.args or {}).items():
        allowed = [patterns] if isinstance(patterns, str) else patterns
        # Defaults stand in `args`, but an argument that the call left out is not there.
        value = args.get(name, "") if isinstance(args, dict) and name in said else ""
        text = value if isinstance(value, str) else to_line(value)
        if not is_among(text, allowed):
            return Found(f'argument "{name}" is {text[:80]!r}; allowed: {", ".join(allowed)}'[:500])
    return None
