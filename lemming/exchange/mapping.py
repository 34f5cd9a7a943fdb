"""The words of other programs in ours: names, tools, models, intervals, and pieces that importers share."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from lemming.capabilities.cron.expressions import why_no_cron
from lemming.capabilities.hosted.servers import SERVERS
from lemming.exchange.source import Destination, Source, Taken
from lemming.kernel.base.paths import SKILL_FILE, why_no_new_agent
from lemming.kernel.base.times.zones import why_no_zone

_TOOLS = {
    "bash": "shell", "exec": "shell", "process": "shell", "shell": "shell",
    "read": "file_read", "write": "file_write", "edit": "file_edit", "multiedit": "file_edit",
    "apply_patch": "file_edit", "glob": "file_list", "ls": "file_list", "list": "file_list",
    "grep": "file_search", "webfetch": "http_get", "web_fetch": "http_get",
}  # fmt: skip
_NEED_NO_TOOL = {
    "todowrite": "memories need no tool",
    "todoread": "memories need no tool",
    "skill": '"skills" needs no tool',
    "memory_search": "memories need no tool",
    "memory_get": "memories need no tool",
}
HARMLESS = ("file_read", "file_write", "file_edit", "file_list", "file_search")
"""Tools of a resume whose source says "all": they reach no further than its own workspace."""

ALIASES = {
    "sonnet": "claude-sonnet-5-5",
    "opus": "claude-opus-5-5",
    "haiku": "claude-haiku-5-5",
    "fable": "claude-fable-5-2",
}
"""Names by which Claude Code knows models, and the models they stand for."""

_PROVIDERS: dict[str, dict[str, Any]] = {
    "anthropic": {"provider": "anthropic"},
    "openai": {"provider": "openai"},
    "ollama": {"provider": "ollama"},
    **{name: {"provider": name} for name, host in SERVERS.items() if host.address},
}
_INTERVAL = re.compile(r"([0-9]{1,6})\s*(ms|s|m|h|d)?\Z")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


def agent_name(text: str) -> str:
    """Return a text as an agent's name; empty when nothing of it can be one.

    >>> agent_name("Code Reviewer"), agent_name("../x"), agent_name("Зоя")
    ('code-reviewer', 'x', '')
    """
    plain = re.sub(r"[^a-z0-9_-]+", "-", text.strip().lower()).strip("-_")[:63]
    return "" if why_no_new_agent(plain) else plain


def title_of(name: str, description: str) -> str:
    """Return a title: the first words of a description, or the name where those say when to use it.

    >>> title_of("reviewer", "Reviews code. Use it after each change.")
    'Reviews code'
    >>> title_of("code-reviewer", "Use this agent when code has changed.")
    'Code Reviewer'
    """
    first = re.split(r"[.;:\n]", " ".join(description.split()), maxsplit=1)[0].strip()
    if not first or first.lower().startswith(("use ", "must ")):
        return name.replace("-", " ").replace("_", " ").title()
    return first if len(first) <= 60 else f"{first[:60].rsplit(' ', 1)[0]} ..."


def words_in(value: Any) -> list[str]:
    """Return what a list says, or a text with commas between: `Read, Agent(a, b), Bash`."""
    if isinstance(value, str):
        return [word.strip() for word in re.findall(r"(?:[^,(]|\([^)]*\)?)+", value) if word.strip()]
    return [str(word).strip() for word in value if str(word).strip()] if isinstance(value, list) else []


def tools_for(names: Iterable[str], known: Destination, taken: Taken, file: str) -> list[str]:
    """Return our tools for those of another program; of one that we have not, the person is told."""
    found = []
    for name in names:
        plain = name.partition("(")[0].strip().lower()
        ours = _TOOLS.get(plain, "")
        if ours in known.tools:
            found.append(ours)
            if "(" in name:
                taken.remark(file, f"tool {name}: {ours} is granted without the limits in brackets")
        elif plain.startswith("mcp__"):
            parts = ".".join(name.split("__"))
            taken.remark(file, f'tool {name}: add "{parts}" to permissions.tools once its server is set up')
        elif plain in _NEED_NO_TOOL:
            taken.remark(file, f"tool {name}: {_NEED_NO_TOOL[plain]}")
        else:
            taken.remark(file, f"tool {name}: there is none like it here; it was left out")
    return list(dict.fromkeys(found))


def model_key(said: str, taken: Taken, file: str) -> str:
    """Return the model key for another program's word for a model, and take note of what it stands for."""
    if not said or said in ("inherit", "default"):
        return "default"
    if said in ALIASES:
        taken.models[said] = {"provider": "anthropic", "model": ALIASES[said]}
        return said
    provider, slash, model = said.partition("/")
    if not slash:
        provider = next((name for start, name in _BY_NAME.items() if said.startswith(start)), "")
        model = said
    if provider not in _PROVIDERS:
        taken.remark(file, f'model "{said}": its provider is not known here; "default" answers instead')
        return "default"
    key = model.replace("/", "-")
    taken.models[key] = {**_PROVIDERS[provider], "model": model}
    return key


_BY_NAME = {"claude-": "anthropic", "gpt-": "openai", "o1": "openai", "o3": "openai", "o4": "openai"}


def seconds_of(every: Any) -> float | None:
    """Return how long an interval such as `30m` is; None for what is none. A bare number is of minutes.

    >>> seconds_of("30m"), seconds_of("1h"), seconds_of("0"), seconds_of("soon")
    (1800.0, 3600.0, 0.0, None)
    """
    found = _INTERVAL.match(str(every).strip().lower())
    return float(found[1]) * _SECONDS[found[2] or "m"] if found else None


def cron_of(seconds: float, hours: str = "*") -> str:
    """Return the cron expression of an interval, within these hours; the nearest that divides its unit.

    >>> cron_of(1800), cron_of(7200), cron_of(1800, "8-21"), cron_of(90_000)
    ('*/30 * * * *', '0 */2 * * *', '*/30 8-21 * * *', '0 0 * * *')
    """
    minutes = max(1, round(seconds / 60))
    if minutes < 60:
        step = max(divisor for divisor in (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30) if divisor <= minutes)
        return f"{'*' if step == 1 else f'*/{step}'} {hours} * * *"
    step = max(divisor for divisor in (1, 2, 3, 4, 6, 8, 12, 24) if divisor <= minutes // 60)
    if step == 24:
        return f"0 {hours.partition('-')[0] if hours != '*' else 0} * * *"
    return f"0 {f'{hours}/{step}' if step > 1 else hours} * * *"


def schedule_of(cron: str, zone: str) -> tuple[dict[str, Any], str]:
    """Return a schedule by the clock, and why there is none."""
    if why := why_no_cron(cron):
        return {}, why[0]
    if why := why_no_zone(zone or "UTC"):
        return {}, why[0]
    return {"run_every_n_ticks": 1, "cron": cron, "timezone": zone or "UTC"}, ""


def resume_of(name: str, *, title: str, instructions: str, key: str, **more: Any) -> dict[str, Any]:
    """Return a resume with its keys in the usual order; of `more`, keys that say nothing are left out."""
    permissions = {"read_outboxes": more.pop("read", []), "tools": more.pop("tools", [])}
    plain: dict[str, Any] = {
        "name": name,
        "title": title,
        "model": {"key": key, **more.pop("model", {})},
        "permissions": permissions,
        "schedule": more.pop("schedule", {"run_every_n_ticks": 1, "wake": "changed"}),
        "instructions": instructions,
        "credits": {"max_credits": 1000, "soft_cap": 500},
    }
    return {**plain, **{key.replace("x_", "x-"): value for key, value in more.items() if value}}


def join_team(taken: Taken, name: str, others: list[str]) -> None:
    """Let an agent ask others, and each read the other."""
    if not others:
        return
    team = taken.resumes[name].setdefault("team", {"ask": []})
    for other in others:
        if other not in team["ask"]:
            team["ask"].append(other)
        for reader, author in ((name, other), (other, name)):
            readable = taken.resumes[reader]["permissions"]["read_outboxes"]
            if author not in readable:
                readable.append(author)


def copy_folder(source: Source, folder: str, to: str, files: dict[str, bytes]) -> None:
    """Take all files of a folder."""
    for path in source.below(folder):
        raw = source.raw(f"{folder}/{path}")
        if raw is not None:
            files[f"{to}/{path}"] = raw


def take_skills(source: Source, folder: str, known: Destination, taken: Taken) -> dict[str, str]:
    """Take the skills in a folder, and return them by name, each with what a resume lists it as."""
    files = {name: f"{folder}/{name}" for name in source.names(folder)[0]}
    skills = {name: path for name, path in files.items() if source.raw(f"{path}/{SKILL_FILE}") is not None}
    if known.is_in_place:
        return skills
    for name, path in skills.items():
        copy_folder(source, path, f"skills/{name}", taken.optional)
    return {name: name for name in skills}


def tell_of_others(taken: Taken, where: str, names: Iterable[str]) -> None:
    """Tell the person what lies there and was not taken."""
    if others := list(names):
        more = f" and {len(others) - 10} more" if len(others) > 10 else ""
        taken.remark(where or ".", f"not taken: {', '.join(others[:10])}{more}")


def part_of(plain: Any, *keys: str) -> dict[str, Any]:
    """Return an object inside an object; an empty one where there is none."""
    for key in keys:
        plain = plain.get(key) if isinstance(plain, dict) else None
    return plain if isinstance(plain, dict) else {}
