"""A resume in few words, as one types it: the flags of `lemming agents new`, and agents in one file. Pure.

    does: Sum up what the collector found.
    read: [collector]
    cron: 0 9 * * 1
    approve: [file_write, send]

Whatever else a resume can say stands beside these words under the resume's own keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, get_args

from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import nearest
from lemming.kernel.base.kinds import ToolClass
from lemming.kernel.files.fitting import further_of, types_by_key
from lemming.kernel.org.resume import Agent

Json = dict[str, Any]

DEFAULT_CREDITS = {"max_credits": 1000, "soft_cap": 500}
PLACEHOLDER = "Describe here what this agent is for and what it should write."
PLACES = {
    "does": ("instructions",),
    "read": ("permissions", "read_outboxes"),
    "tools": ("permissions", "tools"),
    "may_read": ("permissions", "file_access", "allow_read"),
    "may_write": ("permissions", "file_access", "allow_write"),
    "every": ("schedule", "run_every_n_ticks"),
    "offset": ("schedule", "phase_offset"),
    "cron": ("schedule", "cron"),
    "timezone": ("schedule", "timezone"),
    "wake": ("schedule", "wake"),
    "steps": ("turn", "max_steps"),
    "strategy": ("turn", "strategy"),
    "kinds": ("turn", "kinds"),
    "ask": ("team", "ask"),
    "hand_to": ("team", "hand_to"),
}
"""The words that stand for one place in a resume."""
WORDS = (*PLACES, "model", "approve", "budget")
_OWN_KEYS = frozenset((*types_by_key(Agent), *further_of(Agent))) - {"further"}
_LIMIT = re.compile(r"\$\s*(?P<dollars>[0-9]+(?:\.[0-9]+)?)|(?P<tokens>[1-9][0-9]*)\s+tokens")
_ONE_OR_MORE = frozenset({"read", "tools", "may_read", "may_write", "kinds", "ask", "hand_to", "approve"})


def title_of(name: str) -> str:
    """Return what an agent is called that nobody has given a title.

    >>> title_of("night-editor")
    'Night Editor'
    """
    return name.replace("_", " ").replace("-", " ").title()


class WordDefaults(NamedTuple):
    """What an agent comes into: its persons, and the time zone of an hour without one (empty: it has one)."""

    persons: tuple[str, ...] = ()
    zone: str = ""


def resume_of(name: str, said: Mapping[str, Any], around: WordDefaults = WordDefaults()) -> Json:  # noqa: B008
    """Return the resume that these words mean. Raises `UsageError` for a word that is none.

    Where they say nothing of it, an agent takes its turns when something it reads has changed (by the clock,
    with `cron`), and has a budget of 1,000 credits.
    """
    _refuse_unknown(name, said)
    plain: Json = {"name": name, "title": title_of(name), "model": {"key": "default"}}
    plain |= {"permissions": {"read_outboxes": [], "tools": []}, "schedule": {"wake": default_wake(said)}}
    plain |= {"instructions": PLACEHOLDER, "credits": DEFAULT_CREDITS}
    plain |= {key: _copy(value) for key, value in said.items() if key not in WORDS}
    return {key: value for key, value in with_words(plain, said, around).items() if value != {}}


def default_wake(said: Mapping[str, Any]) -> str:
    """Return when an agent takes its turns whose words say nothing of it: by the clock, or for news."""
    return "always" if said.get("cron") else "changed"


def with_words(plain: Json, said: Mapping[str, Any], around: WordDefaults = WordDefaults()) -> Json:  # noqa: B008
    """Return a resume with what these words say in the place of what it said.

    Who has a person asked reads the persons, or could not be answered.
    """
    plain = _copy(plain)
    for word, value in said.items():
        if word in PLACES:
            *blocks, last = PLACES[word]
            inside = plain
            for block in blocks:
                inside[block] = inside = dict(inside.get(block) or {})
            inside[last] = _listed(value) if word in _ONE_OR_MORE else value
    if (model := said.get("model")) is not None:
        plain["model"] = {**plain["model"], "key": model} if isinstance(model, str) else _copy(model)
    if "budget" in said:
        _put_budget(plain, said["budget"])
    if approve := _listed(said.get("approve") or []):
        plain["gates"] = [*(plain.get("gates") or []), *_asking(approve)]
        heard = plain["permissions"].setdefault("read_outboxes", [])
        if around.persons and not {"*", *around.persons} & {*heard}:
            heard.append(around.persons[0])
    if said.get("cron") and around.zone and "timezone" not in plain["schedule"]:
        plain["schedule"]["timezone"] = around.zone
    return plain


def words_of(plain: Mapping[str, Any]) -> Json:
    """Return a resume in words, from which `resume_of` makes one that says the same."""
    rest, said = _copy(dict(plain)), {}
    name = rest.pop("name")
    if rest.get("title") == title_of(name):
        del rest["title"]
    for word, path in PLACES.items():
        value, found = _take(rest, path)
        if found and word not in ("ask", "hand_to"):
            said[word] = value
        elif found:
            rest.setdefault("team", {})[path[-1]] = value
    for word in ("read", "tools"):
        if said.get(word) == []:
            del said[word]
    if rest.get("model") == {"key": "default"}:
        del rest["model"]
    elif rest.get("model", {}).keys() == {"key"}:
        said["model"] = rest.pop("model")["key"]
    for block in ("permissions", "turn", "schedule"):
        if rest.get(block) == {}:
            del rest[block]
    if said.get("wake") == default_wake(said):
        del said["wake"]
    elif "wake" not in said:
        rest.setdefault("schedule", {})
    if rest.setdefault("credits", {}) == DEFAULT_CREDITS:
        del rest["credits"]
    elif rest["credits"].keys() == {"max_credits"}:
        said["budget"] = rest.pop("credits")["max_credits"]
    return {**said, **rest}


def _take(plain: Json, path: tuple[str, ...]) -> tuple[Any, bool]:
    inside: Any = plain
    for block in path[:-1]:
        inside = inside.get(block)
        if not isinstance(inside, dict):
            return None, False
    if path[-1] not in inside:
        return None, False
    value = inside.pop(path[-1])
    if len(path) > 2 and not inside:
        plain[path[0]].pop(path[1])
    return value, True


_OTHER_WORDS = dict.fromkeys(
    ("goal", "instruction", "instuctions", "prompt", "role", "system", "system_prompt", "task"),
    'write "does": what the agent is to do',
)


def _refuse_unknown(name: str, said: Mapping[str, Any]) -> None:
    known = [*WORDS, *sorted(_OWN_KEYS - {"name", "instructions"})]
    for word in said:
        if word not in (*known, "instructions") and not word.startswith("x-"):
            hint = _OTHER_WORDS.get(word, "") or nearest(word, known) or f"words: {', '.join(known)}"
            raise UsageError(f'"{word}" says nothing of an agent', where=f"agents.{name}", hint=hint)


def _put_budget(plain: Json, budget: Any) -> None:
    """A number is credits in all; "$2" and "9000 tokens" are limits beside the credits there are."""
    if isinstance(budget, str) and (found := _LIMIT.fullmatch(budget.strip())):
        amounts = {key: _number(value) for key, value in found.groupdict().items() if value}
        limit = {"at": "spend", **amounts, "per": "agent", "then": "block"}
        plain["gates"] = [*(plain.get("gates") or []), limit]
        return
    try:
        most = _number(budget)
    except (TypeError, ValueError):
        hint = 'credits in all, such as 50, dollars, such as "$2", or "200000 tokens"'
        raise UsageError(f'"{budget}" is no budget', where=f"agents.{plain['name']}", hint=hint) from None
    plain["credits"] = {"max_credits": most}


def _number(text: Any) -> int | float:
    """
    >>> _number("5"), _number(0.5)
    (5, 0.5)
    """
    value = float(text)
    return int(value) if value == int(value) else value


def _asking(words: list[Any]) -> Iterator[Json]:
    """Yield the gates that have calls wait for a person: of classes (send, execute, ...) and of tools."""
    classes = [word for word in words if word in get_args(ToolClass)]
    tools = [word for word in words if word not in classes]
    if classes:
        yield {"at": "call", "class": classes, "then": "ask"}
    if tools:
        yield {"at": "call", "tool": tools, "then": "ask"}


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value
