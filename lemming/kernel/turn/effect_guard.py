"""Guard of effects against the interceptors of plugins: copies to read, and a check of the effect passed on.

Values that can be changed in place are lent as copies, which no cache, record or other capability shares. A change of
such a copy is refused by name. The capabilities that ship get the effects themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import fields, replace
from typing import Any, TypeVar

from lemming.kernel.base.entry_kinds import MESSAGE_KINDS
from lemming.kernel.base.object_cache import ObjectCache
from lemming.kernel.journal.turn_report import STATUS_OF, is_applied
from lemming.kernel.plugins.capability_errors import capability_error, find_json_problems
from lemming.kernel.plugins.capability_table import LISTED
from lemming.kernel.turn import turn_effects as effects
from lemming.kernel.turn.live_phase import CheckResult, RunTool, StartTool
from lemming.kernel.turn.preparation_effects import (
    BuildPrompt,
    ReceiveEntry,
    SelectContext,
    ShowEarlierResult,
    ShowEntry,
    ShowMemory,
)

E = TypeVar("E", bound=effects.Effect)
T = TypeVar("T")

_COPIED: Mapping[type[effects.Effect], Sequence[str]] = {
    effects.WriteEntry: ("payload", "tags"),
    effects.WriteMemory: ("value",),
    effects.CallTool: ("args",),
    effects.TakeResult: ("call", "result"),
    effects.TakeReply: ("reply",),
    effects.CarryOut: ("reply",),
    effects.CheckEntries: ("entries",),
    effects.BindFiles: ("payloads",),
    effects.AskModel: ("messages", "schema"),
    effects.ShowResult: ("result",),
    effects.Seal: ("entries", "results"),
    effects.EndTurn: ("entries", "failure_entries"),
    RunTool: ("call",),
    StartTool: ("call",),
    CheckResult: ("call", "result"),
    ReceiveEntry: ("entry",),
    ShowEntry: ("entry",),
    ShowMemory: ("value",),
    ShowEarlierResult: ("result",),
    SelectContext: ("requests", "inbox", "results", "other_entries"),
}
"""The fields of an effect with values that could be changed in place."""
_COMPARED = {*_COPIED} - {effects.TakeReply, effects.CarryOut, SelectContext}
"""Types of effects of which a change in place is refused. Of others it is as a change that is passed on."""
_GROUPS = (str, bool, int | float, Mapping, list | tuple, type(None))
AFTER_END = "in `wrap_turn`, or after `outcome = yield effect`: until then an EndTurn holds the entries"
_CALLS = (RunTool, StartTool, CheckResult)


def is_plugin(name: str) -> bool:
    """Return True if a plugin brings the capability of the name."""
    return bool(name) and name not in LISTED


class _Lent(dict[int, tuple[Any, Any]]):
    """Copies of values that a plugin's view of a turn has given out, by the values' identities."""

    def __init__(self, _: object) -> None:
        super().__init__()


def lend(name: str, view: ObjectCache, value: T) -> T:
    """Return a value of a turn to a capability: to that of a plugin a copy, the same each time."""
    if not is_plugin(name):
        return value
    lent = view.get_cache(_Lent)
    if id(value) not in lent:
        lent[id(value)] = value, deepcopy(value)
    copied: T = lent[id(value)][1]
    return copied


def copy_effect(effect: E) -> E:
    """Return an effect with copies of the values that could be changed in place."""
    copies = {name: _copy(getattr(effect, name)) for name in _COPIED.get(type(effect), ())}
    if isinstance(effect, BuildPrompt):
        prompt = effect.prompt
        inbox, requests, results = deepcopy(prompt.inbox), deepcopy(prompt.requests), deepcopy(prompt.results)
        prompt = replace(prompt, inbox=inbox, requests=requests, results=results)
        copies = {"prompt": prompt, "selected": copy_effect(effect.selected)}
    return replace(effect, **copies) if copies else effect


def _copy(value: Any) -> Any:
    return copy_effect(value) if isinstance(value, effects.Effect) else deepcopy(value)


def list_values(effect: effects.Effect) -> Any:
    """Return the values of an effect of which a change in place is refused."""
    if type(effect) not in _COMPARED:
        return None
    if isinstance(effect, _CALLS):
        return effect.call.args, {**effect.facts}
    if isinstance(effect, effects.TakeResult):
        return effect.call.args, effect.result
    return [getattr(effect, name) for name in _COPIED[type(effect)]], {**effect.facts}


def find_violation(
    name: str, intercept: Callable[..., Any], facts: Sequence[str], *, before: effects.Effect, after: effects.Effect
) -> str:
    """Return the reason against an effect that an interceptor yields, or an empty string.

    `facts`: those that the interceptor writes. An effect of another type is new, and need not have all facts of `before`.
    """
    if after is before:
        return ""
    if type(after) is type(before):
        if is_plugin(name):
            _check_passed_on(name, intercept, before, after)
            if part := _find_fixed_change(before, after):
                return f"{name} must pass on the {part} as it got it"
        parts = zip(_fixed_parts(after), _fixed_parts(before), strict=True)
        if any(new is not old for new, old in parts):
            return f"{name} altered the tool, or the approval that it carries"
    if after.facts is before.facts:
        return ""
    keys = {*before.facts, *after.facts} if type(after) is type(before) else {*after.facts}
    altered = {key for key in keys if before.facts.get(key) != after.facts.get(key)} - {*facts}
    if not altered:
        return ""
    return f"{name} altered facts of others: {', '.join(sorted(altered))}; list its own in `facts`"


def _fixed_parts(effect: effects.Effect) -> Sequence[Any]:
    """Return the parts of an effect that no interceptor may replace."""
    if isinstance(effect, (RunTool, StartTool, CheckResult)):
        return effect.tool, effect.call.tool, effect.call.approved
    return (effect.grant,) if isinstance(effect, (effects.CallTool, effects.WriteEntry)) else ()


def _check_passed_on(name: str, intercept: Callable[..., Any], before: effects.Effect, after: effects.Effect) -> None:
    """Check an effect that an interceptor passes on, of the type that it got.

    Raises:
        HookError: A field has another type, or a value that cannot be written.
    """
    _check_types(name, intercept, before, after)
    if isinstance(before, BuildPrompt) and isinstance(after, BuildPrompt):
        _check_types(name, intercept, before.prompt, after.prompt)
    for problem in _find_unwritable(after):
        raise capability_error(name, intercept, f"must pass on {type(before).__name__}.{problem}")


def _check_types(name: str, intercept: Callable[..., Any], before: Any, after: Any) -> None:
    for field in fields(before):
        old, new = getattr(before, field.name), getattr(after, field.name)
        if new is old or field.name in ("facts", "value"):
            continue
        if old is not None and _find_group(new) is not _find_group(old):
            path = f"{type(before).__name__}.{field.name}"
            raise capability_error(name, intercept, f"must pass on {path} as {_name(old)}, got {_name(new)}")


def _find_unwritable(effect: effects.Effect) -> Sequence[str]:
    match effect:
        case effects.WriteEntry():
            if effect.kind not in MESSAGE_KINDS:
                return [f"kind as one of {', '.join(MESSAGE_KINDS)}, got {effect.kind!r}"]
            if wrong := [tag for tag in effect.tags if not isinstance(tag, str)]:
                return [f"tags as texts, got {wrong[0]!r}"]
            return [f"payload as JSON, got {problem}" for problem in find_json_problems(effect.payload)]
        case effects.WriteMemory():
            return [f"value as JSON, got {problem}" for problem in find_json_problems(effect.value)]
        case effects.WriteFile(file=file) if type(file.content) is not bytes:
            return [f"file with bytes as content, got {_name(file.content)}"]
        case effects.CallTool():
            return [f"args as JSON, got {problem}" for problem in find_json_problems(effect.args)]
    return ()


def _find_fixed_change(before: effects.Effect, after: effects.Effect) -> str:
    """Return the name of a part that a plugin may not replace and has replaced, or an empty string."""
    match before, after:
        case effects.WriteFile(file=old), effects.WriteFile(file=new):
            return "path of the file" if (old.root, old.path, old.removes) != (new.root, new.path, new.removes) else ""
        case effects.WriteMemory(memory_key=old_key), effects.WriteMemory(memory_key=new_key):
            return "key of the memory" if old_key != new_key else ""
        case effects.CallTool(tool=old_tool), effects.CallTool(tool=new_tool):
            return "tool" if old_tool != new_tool else ""
        case BuildPrompt(), BuildPrompt():  # the instructions stand in the prompt's prefix, which is the resume's
            return "agent of the prompt" if before.prompt.agent is not after.prompt.agent else ""
        case effects.Seal(), effects.Seal():
            return _find_unsealed(before, after)
        case effects.EndTurn(), effects.EndTurn():
            return _find_loss(before, after)
    return ""


def _find_loss(before: effects.EndTurn, after: effects.EndTurn) -> str:
    """Return the changed part of the end of a turn, or "". Only `end` may change: the entries are decided."""
    if (*after.entries,) != before.entries or (*after.failure_entries,) != before.failure_entries:
        return "entries of the turn"
    if after.drops_files != before.drops_files:
        return "files and memories of the turn"
    ends_alike = after.error is before.error and is_applied(STATUS_OF[after.end]) == is_applied(STATUS_OF[before.end])
    return "" if ends_alike else "success or failure of the turn"


def _find_unsealed(before: effects.Seal, after: effects.Seal) -> str:
    """Return the part of the final outputs from which an interceptor took something, or an empty string."""
    if any(after.files.get(path) != file for path, file in before.files.items()):
        return "files of the turn"
    if any(path.startswith(("agents/", "config/")) for path in after.files.keys() - before.files.keys()):
        return "folders of agents and settings"
    old, new = ([(item.identity, item.payload) for item in seal.entries] for seal in (before, after))
    is_same = old == new and all(
        {*earlier.tags} <= {*later.tags} for earlier, later in zip(before.entries, after.entries, strict=True)
    )
    return "" if is_same and len(before.results) == len(after.results) else "entries, tags or results of the turn"


def _find_group(value: Any) -> object:
    """Return the type that a value must keep; lists and tuples are one, and so are objects and numbers."""
    return next((group for group in _GROUPS if isinstance(value, group)), type(value))


def _name(value: Any) -> str:
    return type(value).__name__
