"""An organisation as one document: agents in few words, models, settings, and the files that they need.

    agents:
      writer: {does: Write the changelog., read: [collector]}
    models:
      default: {provider: openai, model: gpt-6-luna}
    files:
      tools/commits.py: ...

The files of the organisation are what comes out; whatever the document does not name stays as it is.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Literal, NamedTuple

from lemming.capabilities.skills.front_matter import NotFrontMatter, load_yaml
from lemming.exchange.shorthand import WordDefaults, resume_of
from lemming.kernel.agents import decode_resume
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, UsageError
from lemming.kernel.base.jsontext import JsonProblem, nearest, parse, pretty
from lemming.kernel.org.config import CREDITS_FILE, MODELS_FILE, ORG_FILE

LIMIT_BYTES = 1 << 20
TOOLS = "tools/*.py"
PARTS = ("agents", "models", "settings", "credits", "files", "trust")
IN_PARTS = {"models": MODELS_FILE, "settings": ORG_FILE, "credits": CREDITS_FILE}
FILES = (
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
    TOOLS,
)
"""What `files` may hold, beside what the other parts are written into."""

Json = dict[str, Any]


class OrgPieces(NamedTuple):
    """What a document wants written: resumes by agent, keys of settings by file, other files by path.

    `read_by`: who is to read whom, of agents that the document does not hold.
    """

    resumes: dict[str, Json]
    settings: dict[str, Json]
    files: dict[str, bytes]
    read_by: list[tuple[str, str]]


def document_of(raw: bytes, file: str) -> Json:
    """Return what a file says: YAML, TOML (`.toml`) or JSON (`.json`). Raises `ConfigError` with the line."""
    try:
        text = raw.decode()
        if file.endswith(".toml"):
            found: Any = tomllib.loads(text)
        elif file.endswith(".json"):
            found = parse(text, allow_bom=True, limit_bytes=LIMIT_BYTES)
        else:
            found = load_yaml(text, LIMIT_BYTES)
    except UnicodeDecodeError as error:
        raise ConfigError(f"it is no UTF-8 text (at byte {error.start})", where=file) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"it is no TOML: {error}", where=file) from error
    except RecursionError as error:  # of TOML: the other two say so themselves
        raise ConfigError("it is nested too deep", where=file) from error
    except (JsonProblem, NotFrontMatter) as error:
        place = f"{file}:{error.line}" if error.line else file
        raise ConfigError(
            f"it cannot be read: {error}", where=place, hint="mend it there; nothing was written"
        ) from error
    if not isinstance(found, dict):
        raise ConfigError("it holds no organisation", where=file, hint=f"keys: {', '.join(PARTS)}")
    return found


def wanted_of(document: Json, file: str, known: Iterable[str], around: WordDefaults) -> OrgPieces:
    """Return what a document wants written; `known` are agents that are there.

    Raises `ConfigError` and `UsageError`, with the place in the document, for what is wrong with it.
    """
    for part in document:
        if part not in PARTS:
            hint = nearest(part, list(PARTS)) or f"keys: {', '.join(PARTS)}"
            raise ConfigError(f'"{part}" is no part of an organisation', where=file, hint=hint)
    agents, plans = _without_plans(_object(document, "agents", file), file, around)
    if "timezone" in _object(document, "settings", file):
        around = around._replace(zone="")
    resumes, read_by = _resumes(agents, plans, file, {*known}, around)
    files = dict(_files({**_object(document, "files", file), **plans}, file))
    files |= dict(_marks(_object(document, "trust", file), files, file))
    settings = {IN_PARTS[part]: _object(document, part, file) for part in IN_PARTS if part in document}
    if any(PurePosixPath(path).match(TOOLS) and path.count("/") == 1 for path in files):
        own = settings.setdefault(ORG_FILE, {})
        own.setdefault("tool_files", [TOOLS])
    return OrgPieces(resumes, settings, files, read_by)


def _without_plans(agents: Json, file: str, around: WordDefaults) -> tuple[Json, Json]:
    """Return the agents, and the files of their plans; who has one follows it, where its words say no other.

    So it wakes for persons who ask it, and may call the tools of its plan.
    """
    found, files = dict(agents), {}
    for name, said in agents.items():
        if not isinstance(said, dict) or "plan" not in said:
            continue
        words = dict(said)
        plan = words.pop("plan")
        if not isinstance(plan, dict):
            raise ConfigError("a plan is an object with steps", where=f"{file}: agents.{name}.plan")
        files[f"agents/{name}/plan.json"] = plan
        usual: Json = {"does": "No model is asked: plan.json says what is done.", "model": "plan"}
        if not words.keys() & {"schedule", "cron", "wake", "every"}:
            usual["wake"] = "addressed"
        if "permissions" not in words:
            usual |= {"read": [*around.persons], "tools": _named_in(plan, ("tool",))}
        found[name] = usual | words
    return found, files


def _named_in(plan: Any, keys: tuple[str, ...]) -> list[str]:
    """Return whom or what a plan names under these keys of its steps, in their order.

    >>> _named_in({"steps": [{"parallel": [{"ask": "ada"}], "verify": {"ask": "bob"}}]}, ("ask",))
    ['ada', 'bob']
    """
    if isinstance(plan, list):
        return [*dict.fromkeys(name for item in plan for name in _named_in(item, keys))]
    if not isinstance(plan, dict):
        return []
    own = [plan[key] for key in keys if isinstance(plan.get(key), str) and plan[key]]
    below = (it for key, value in plan.items() if key not in _NO_STEPS for it in _named_in(value, keys))
    return [*dict.fromkeys([*own, *below])]


_NO_STEPS = ("args", "output", "default", "when", "choose")
"""Keys of a plan whose values are not the plan's words."""


def _object(document: Json, part: str, file: str) -> Json:
    found = document.get(part)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ConfigError(f'"{part}" must hold names, each with what it is', where=file)
    return found


def _resumes(
    agents: Json, plans: Json, file: str, known: set[str], around: WordDefaults
) -> tuple[dict[str, Json], list[tuple[str, str]]]:
    there = known | agents.keys()
    follows = {path.split("/")[1]: _named_in(plan, ("ask", "plan")) for path, plan in plans.items()}
    asked = {name: [*_of_team(said, "ask"), *follows.get(name, [])] for name, said in agents.items()}
    turned_to = {name: [*asked[name], *_of_team(said, "hand_to")] for name, said in agents.items()}
    passed_on = [
        (to, person)
        for name, said in agents.items()
        for to in _of_team(said, "hand_to")
        for person in around.persons
        if {person, "*"} & {*_listed(said.get("read"))}
    ]  # whose conversation one takes over, one reads
    asked_by = {name: [it for it, names in turned_to.items() if name in names] for name in there}
    judges = {name for said in agents.values() for name in _find_judges(said)}
    resumes = {}
    for name, said in agents.items():
        place = f"{file}: agents.{name}"
        if why := paths.why_no_new_agent(name):
            raise ConfigError(why, where=place, hint="take another name")
        if not isinstance(said, dict | str):
            raise ConfigError("an agent is what it does, or words", where=place, hint='"does: ..."')
        words: Json = {"does": said} if isinstance(said, str) else dict(said)
        heard = (it for other, it in passed_on if other == name)
        hears = [*dict.fromkeys([*_listed(words.get("read")), *asked[name], *asked_by[name], *heard])]
        if hears and "*" not in hears:
            words["read"] = hears
        only_judges = name in judges and not words.keys() & {"read", "every", "plan"}
        if (asked_by[name] or only_judges) and not words.keys() & {"wake", "schedule", "cron"}:
            words["wake"] = "addressed"  # who judges does so in the turn of who is judged
        for other in {*_listed(words.get("read")), *turned_to[name]} - {"*"} - there:
            hint = nearest(str(other), sorted(there)) or f"agents: {', '.join(sorted(there))}"
            raise ConfigError(f'there is no agent "{other}"', where=place, hint=hint)
        resumes[name] = _decoded(name, words, place, around)
    outside = [(it, name) for name, names in turned_to.items() for it in names if it not in agents]
    outside += [(it, person) for it, person in passed_on if it not in agents]
    return resumes, outside


def _decoded(name: str, words: Json, place: str, around: WordDefaults) -> Json:
    try:
        plain = resume_of(name, words, around)
        decode_resume(name, pretty(plain))
    except UsageError as error:
        raise UsageError(error.message, where=place, hint=error.hint) from error
    except ConfigError as error:
        said = "; ".join(f"{it.pointer or '/'}: {it.message}" for it in error.problems[:3])
        raise ConfigError(said, where=place, hint=error.problems[0].hint) from error
    return plain


def _of_team(said: Any, word: Literal["ask", "hand_to"]) -> list[str]:
    """Return whom an agent's words let it ask, or hand on to."""
    if not isinstance(said, dict):
        return []
    team = said.get("team") if isinstance(said.get("team"), dict) else {}
    named = [*_listed(said.get(word)), *_listed((team or {}).get(word))]
    return [it["agent"] if isinstance(it, dict) and "agent" in it else str(it) for it in named]


def _find_judges(said: Any) -> Iterator[str]:
    """Yield the agents, or model keys, that judge what an agent writes, as its words name them."""
    if not isinstance(said, dict):
        return
    gates = said.get("gates") if isinstance(said.get("gates"), list) else []
    for judged in (said.get("verify"), *(gates or ())):
        by = judged.get("by") if isinstance(judged, dict) else None
        if name := by.get("agent") if isinstance(by, dict) else by:
            yield str(name)


def _files(given: Json, file: str) -> Iterator[tuple[str, bytes]]:
    for path, content in given.items():
        place = f"{file}: files.{path}"
        if not is_taken(path):
            raise ConfigError("no file of an organisation", where=place, hint=f"such as {', '.join(FILES)}")
        if isinstance(content, str):
            yield path, content.encode()
        elif isinstance(content, dict | list) and path.endswith(".json"):
            yield path, pretty(content)
        else:
            raise ConfigError("a file is its text, or JSON under a name that ends so", where=place)


def _marks(given: Json, files: Mapping[str, bytes], file: str) -> Iterator[tuple[str, bytes]]:
    """Yield the marks that say how far files of the document are trusted, where it says so."""
    for path, word in given.items():
        place = f"{file}: trust.{path}"
        if path not in files:
            raise ConfigError("no file of the document", where=place, hint="name one that stands in files")
        if not isinstance(word, str) or not word:
            raise ConfigError("how far a file is trusted is a word", where=place, hint='such as "outside"')
        from lemming.capabilities.trust.marks import mark_effect  # where a document has any

        mark = mark_effect(path, word, 0, "", ())
        yield mark.path, mark.content


def is_taken(path: str) -> bool:
    """Return whether a document may hold the file."""
    is_plain = path == str(PurePosixPath(path)) and ".." not in path.split("/") and path.isprintable()
    return is_plain and any(_fits(path, pattern) for pattern in FILES)


def _fits(path: str, pattern: str) -> bool:
    """
    >>> _fits("shared/a/b.txt", "shared/**"), _fits("tools/x/y.py", "tools/*.py")
    (True, False)
    """
    if pattern.endswith("/**"):
        head, depth = pattern.removesuffix("/**"), pattern.count("/")
        return path.count("/") >= depth and _fits("/".join(path.split("/")[:depth]), head)
    return path.count("/") == pattern.count("/") and PurePosixPath(path).match(pattern)


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list) else [value]
