"""An organisation as a single document: agents in shorthand, models, settings, and further files.

    agents:
      writer: {does: Write the changelog., read: [collector]}
    models:
      default: {provider: openai, model: gpt-6-luna}
    files:
      tools/commits.py: ...

The document becomes the files of an organisation. Files without an entry in the document stay unchanged.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import PurePosixPath
from typing import Any, Literal, NamedTuple

from lemming.import_export.resume_shorthand import ShorthandDefaults, expand_shorthand
from lemming.kernel.agents import decode_resume
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, UsageError
from lemming.kernel.base.jsontext import JsonProblem, did_you_mean, dump_pretty, escape_pointer_key, locate, parse
from lemming.kernel.plugins.capability_loader import require_fact
from lemming.libraries.front_matter import InvalidFrontMatter, find_yaml_line, parse_yaml

LIMIT_BYTES = 1 << 20
TOOL_FILES_PATTERN = "tools/*.py"
PARTS = ("agents", "models", "settings", "credits", "files", "trust")
SETTINGS_FILES = {"models": paths.MODELS_FILE, "settings": paths.ORG_FILE, "credits": paths.CREDITS_FILE}
ALLOWED_FILES = (
    "AGENTS.md",
    "agents/*/AGENTS.md",
    "agents/*/plan.json",
    "agents/*/skills/**",
    "agents/*/tools/*.py",
    "config/calendar.json",
    "config/mcp.json",
    "config/answers.jsonl",
    "evals/**",
    "shared/**",
    "skills/**",
    TOOL_FILES_PATTERN,
)
"""Files that `files` may contain, besides those written by the other parts."""

Json = dict[str, Any]


class OrgDocument(NamedTuple):
    """The content of a document: resumes by agent, settings by file, other files by path.

    `read_by`: pairs of an agent outside the document and an author to be read by the agent.
    """

    resumes: dict[str, Json]
    settings: dict[str, Json]
    files: dict[str, bytes]
    read_by: list[tuple[str, str]]


def parse_document(raw: bytes, file: str) -> Json:
    """Parse a document: YAML, TOML (`.toml`) or JSON (`.json`). Raises: ConfigError with the line."""
    try:
        text = raw.decode()
        if file.endswith(".toml"):
            document: Any = tomllib.loads(text)
        elif file.endswith(".json"):
            document = parse(text, allow_bom=True, limit_bytes=LIMIT_BYTES)
        else:
            document = parse_yaml(text, LIMIT_BYTES)
    except UnicodeDecodeError as error:
        raise ConfigError(f"expected UTF-8 text, got other bytes at byte {error.start}", where=file) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not valid TOML: {error}", where=file) from error
    except RecursionError as error:  # raised by TOML; the other two parsers report it themselves
        raise ConfigError("the document is nested too deep", where=file) from error
    except (JsonProblem, InvalidFrontMatter) as error:
        location = f"{file}:{error.line}" if error.line else file
        hint = "correct it there; nothing was written"
        raise ConfigError(f"cannot be read: {error}", where=location, hint=hint) from error
    if not isinstance(document, dict):
        hint = f"use the keys {', '.join(PARTS)}"
        raise ConfigError("the document has none of the expected keys", where=file, hint=hint)
    return document


def parse_org(document: Json, file: str, existing_agents: Iterable[str], defaults: ShorthandDefaults) -> OrgDocument:
    """Build the content of an organisation from a parsed document; `existing_agents` are agents outside the document.

    Raises: ConfigError and UsageError with the location in the document.
    """
    for part in document:
        if part not in PARTS:
            hint = did_you_mean(part, list(PARTS)) or f"use one of {', '.join(PARTS)}"
            raise ConfigError(f'unknown key "{part}"', where=file, hint=hint)
    agents, plans = _extract_plans(_require_object(document, "agents", file), file, defaults)
    if "timezone" in _require_object(document, "settings", file):
        defaults = defaults._replace(zone="")
    resumes, read_by = _build_resumes(agents, plans, file, {*existing_agents}, defaults)
    files = dict(_iter_files({**_require_object(document, "files", file), **plans}, file))
    files |= dict(_iter_trust_labels(_require_object(document, "trust", file), files, file))
    settings = {
        path: _require_object(document, part, file) for part, path in SETTINGS_FILES.items() if part in document
    }
    if any(_matches_pattern(path, TOOL_FILES_PATTERN) for path in files):
        settings.setdefault(paths.ORG_FILE, {}).setdefault("tool_files", [TOOL_FILES_PATTERN])
    return OrgDocument(resumes, settings, files, read_by)


def _extract_plans(agents: Json, file: str, defaults: ShorthandDefaults) -> tuple[Json, Json]:
    """Return the agents and their plan files.

    An agent with a plan follows the plan unless the entry says otherwise. By default such an agent wakes for addressed
    messages, reads all persons, and may call the tools of the plan.
    """
    expanded, files = dict(agents), {}
    for name, entry in agents.items():
        if not isinstance(entry, dict) or "plan" not in entry:
            continue
        shorthand = dict(entry)
        plan = shorthand.pop("plan")
        if not isinstance(plan, dict):
            raise ConfigError("a plan must be an object with steps", where=f"{file}: agents.{name}.plan")
        files[f"agents/{name}/plan.json"] = plan
        plan_defaults: Json = {"does": "No model is asked: plan.json says what is done.", "model": "plan"}
        if not shorthand.keys() & {"schedule", "cron", "wake", "every"}:
            plan_defaults["wake"] = "addressed"
        if "permissions" not in shorthand:
            plan_defaults |= {"read": [*defaults.persons], "tools": _collect_names(plan, ("tool",))}
        expanded[name] = plan_defaults | shorthand
    return expanded, files


def _collect_names(plan: Any, keys: tuple[str, ...]) -> list[str]:
    """Return the names under the given keys in the steps of a plan, in order.

    >>> _collect_names({"steps": [{"parallel": [{"ask": "ada"}]}, {"ask": "bob"}]}, ("ask",))
    ['ada', 'bob']
    """
    if isinstance(plan, list):
        return [*dict.fromkeys(name for item in plan for name in _collect_names(item, keys))]
    if not isinstance(plan, dict):
        return []
    direct = [plan[key] for key in keys if isinstance(plan.get(key), str) and plan[key]]
    nested = [_collect_names(value, keys) for key, value in plan.items() if key not in _DATA_KEYS]
    return [*dict.fromkeys([*direct, *chain.from_iterable(nested)])]


_DATA_KEYS = ("args", "output", "default", "when", "choose")
"""Keys of a plan with values that are not the plan's own words."""


def _require_object(document: Json, part: str, file: str) -> Json:
    value = document.get(part)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(f'"{part}" must be an object that maps names to values', where=file)
    return value


def _build_resumes(
    agents: Json, plans: Json, file: str, existing_agents: set[str], defaults: ShorthandDefaults
) -> tuple[dict[str, Json], list[tuple[str, str]]]:
    all_agents = existing_agents | agents.keys()
    plan_references = {path.split("/")[1]: _collect_names(plan, ("ask", "plan")) for path, plan in plans.items()}
    team_members = {
        name: [*_list_team_members(entry, "ask"), *plan_references.get(name, [])] for name, entry in agents.items()
    }
    contacts = {name: [*team_members[name], *_list_team_members(entry, "hand_to")] for name, entry in agents.items()}
    handoff_readers = [
        (receiver, person)
        for name, entry in agents.items()
        for receiver in _list_team_members(entry, "hand_to")
        for person in defaults.persons
        if {person, "*"} & {*_to_list(entry.get("read"))}
    ]  # the receiver of a handoff reads the person of the conversation
    callers = {name: [agent for agent, names in contacts.items() if name in names] for name in all_agents}
    judges = {name for entry in agents.values() for name in _find_judges(entry)}
    resumes = {}
    for name, entry in agents.items():
        location = f"{file}: agents.{name}"
        if problem := paths.new_agent_name_error(name):
            raise ConfigError(problem, where=location, hint="choose another name")
        if not isinstance(entry, dict | str):
            raise ConfigError("an agent must be a text or an object", where=location, hint='write "does: ..."')
        shorthand: Json = {"does": entry} if isinstance(entry, str) else dict(entry)
        handoff_authors = [person for receiver, person in handoff_readers if receiver == name]
        contact_names = [*team_members[name], *callers[name], *handoff_authors]
        authors = [*dict.fromkeys([*_to_list(shorthand.get("read")), *contact_names])]
        if authors and "*" not in authors:
            shorthand["read"] = authors
        is_only_judge = name in judges and not shorthand.keys() & {"read", "every", "plan"}
        if (callers[name] or is_only_judge) and not shorthand.keys() & {"wake", "schedule", "cron"}:
            shorthand["wake"] = "addressed"  # a judge works within the turn of the judged agent
        for other in {*_to_list(shorthand.get("read")), *contacts[name]} - {"*"} - all_agents:
            hint = did_you_mean(str(other), sorted(all_agents)) or f"agents: {', '.join(sorted(all_agents))}"
            raise ConfigError(f'there is no agent "{other}"', where=location, hint=hint)
        resumes[name] = _build_resume(name, shorthand, location, defaults)
    outside = [(agent, name) for name, names in contacts.items() for agent in names if agent not in agents]
    outside += [(agent, person) for agent, person in handoff_readers if agent not in agents]
    return resumes, outside


def _build_resume(name: str, shorthand: Json, location: str, defaults: ShorthandDefaults) -> Json:
    try:
        resume = expand_shorthand(name, shorthand, defaults)
        decode_resume(name, dump_pretty(resume))
    except UsageError as error:
        raise UsageError(error.message, where=location, hint=error.hint) from error
    except ConfigError as error:
        messages = "; ".join(f"{problem.pointer or '/'}: {problem.message}" for problem in error.problems[:3])
        raise ConfigError(messages, where=location, hint=error.problems[0].hint) from error
    return resume


def _list_team_members(entry: Any, key: Literal["ask", "hand_to"]) -> list[str]:
    if not isinstance(entry, dict):
        return []
    team = entry.get("team") if isinstance(entry.get("team"), dict) else {}
    members = [*_to_list(entry.get(key)), *_to_list((team or {}).get(key))]
    return [member["agent"] if isinstance(member, dict) and "agent" in member else str(member) for member in members]


def _find_judges(entry: Any) -> Iterator[str]:
    """Yield the agents or model keys with a judge role for the entry's agent."""
    if not isinstance(entry, dict):
        return
    gates = entry.get("gates") if isinstance(entry.get("gates"), list) else []
    for block in (entry.get("verify"), *(gates or ())):
        by = block.get("by") if isinstance(block, dict) else None
        if name := by.get("agent") if isinstance(by, dict) else by:
            yield str(name)


def _iter_files(files: Json, file: str) -> Iterator[tuple[str, bytes]]:
    for path, content in files.items():
        location = f"{file}: files.{path}"
        if not is_allowed_file(path):
            hint = f"use one of {', '.join(ALLOWED_FILES)}"
            raise ConfigError("not a file of an organisation", where=location, hint=hint)
        if isinstance(content, str):
            yield path, content.encode()
        elif isinstance(content, dict | list) and path.endswith(".json"):
            yield path, dump_pretty(content)
        else:
            raise ConfigError("a file must be a text, or JSON if its name ends in .json", where=location)


def _iter_trust_labels(labels: Json, files: Mapping[str, bytes], file: str) -> Iterator[tuple[str, bytes]]:
    """Yield the sidecar label files for the document's files with a trust label."""
    for path, label in labels.items():
        location = f"{file}: trust.{path}"
        if path not in files:
            raise ConfigError("the document has no such file", where=location, hint='name a file listed in "files"')
        if not isinstance(label, str) or not label:
            raise ConfigError("a trust label must be a text", where=location, hint='write "outside", for example')
        yield require_fact("trust.import_label")(path, label)


def is_allowed_file(path: str) -> bool:
    """Return True if a document may contain the file."""
    is_plain = path == str(PurePosixPath(path)) and ".." not in path.split("/") and path.isprintable()
    return is_plain and any(_matches_pattern(path, pattern) for pattern in ALLOWED_FILES)


def _matches_pattern(path: str, pattern: str) -> bool:
    """Return True if a path matches a pattern; `**` at the end matches any depth.

    >>> _matches_pattern("shared/a/b.txt", "shared/**"), _matches_pattern("tools/x/y.py", "tools/*.py")
    (True, False)
    """
    if pattern.endswith("/**"):
        head, depth = pattern.removesuffix("/**"), pattern.count("/")
        return path.count("/") >= depth and _matches_pattern("/".join(path.split("/")[:depth]), head)
    return path.count("/") == pattern.count("/") and PurePosixPath(path).match(pattern)


def _to_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list) else [value]


_QUOTED = re.compile(r'"([^"]+)"')


@contextmanager
def locate_by_line(raw: bytes, file: str) -> Iterator[None]:
    """Add the line number to the location of errors raised about a document within the block."""
    try:
        yield
    except (ConfigError, UsageError) as error:
        error_file, _, path = error.where.partition(": ")
        if error_file == file and path and (line := _find_line(raw, file, path, error.message)):
            old_location, error.where = error.where, f"{file}:{line}: {path}"
            if isinstance(error, ConfigError):
                error.problems = tuple(
                    replace(problem, file=error.where) if problem.file == old_location else problem
                    for problem in error.problems
                )
        raise


def _find_line(raw: bytes, file: str, path: str, message: str) -> int:
    """Return the line of a path, or of a child key quoted in the message, or 0."""
    text = raw.decode("utf-8", "replace").removeprefix("\ufeff")
    parts = path.split(".", 1)  # a file's name has dots, an agent's has none
    parts = parts if parts[0] == "files" else path.split(".")
    keys = _QUOTED.findall(message)[:1]
    for candidate in () if file.endswith(".toml") else ([*parts, *keys], parts):
        pointer = "".join(f"/{escape_pointer_key(key)}" for key in candidate)
        if line := locate(text, pointer)[0] if file.endswith(".json") else find_yaml_line(text, candidate):
            return line
    return 0
