"""A gate, grant, limit, trust rule, team and model's line with each of many typing mistakes: none is run.

Each mistake is made by a rule in a right file; the run is refused, or that agent is out, with file and line.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sampling import EVERYTHING

from lemming.kernel.agents import survey_agents
from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.validation.agent_validation import validate_survey
from lemming.testing import make_org, resume

Json = dict[str, Any]
ORG, MODELS, CREDITS, ADA = (
    "config/org.json", "config/models.json", "config/credits.json", "agents/ada/resume.json",
)  # fmt: skip

GATE: Json = {
    "at": "call", "then": "block", "tool": ["file_write", "mcp.files.*"], "class": "write",
    "when": {"field": "agent", "op": "is", "value": "ada"},
}  # fmt: skip
ASK: Json = {
    "at": "call",
    "then": "ask",
    "tool": "file_write",
    "args": {"path": "shared/reports/*"},
    "persons": ["human"],
    "approved": {"ada": ["file_write"]},
}
FIELD: Json = {
    "at": "call",
    "then": "block",
    "tool": "file_write",
    "when": {"field": "args.path", "op": "starts_with", "value": "/etc"},
}
LIMIT: Json = {
    "at": "spend", "then": "stop", "credits": 5, "per": "agent", "window": "24h",
    "when": {"field": "model", "op": "is", "value": "scripted"},
}  # fmt: skip
OUT: Json = {"at": "out", "then": "block", "when": {"field": "target", "op": "is", "value": "editor"}}
LABEL: Json = {
    "at": "call", "then": "block", "tool": "file_write",
    "when": {"field": "args_trust.path", "op": "is", "value": "outside"},
}  # fmt: skip
KEYS: Json = {"at": "spend", "then": "block", "models": ["scripted"]}
TRUST: Json = {
    "order": ["outside", "known", "agent", "owner"],
    "rules": [{"from": "editor", "is": "known"}],
    "tools": {"file_search": "outside", "mcp.files.*": "known"},
}
TEAM: Json = {"ask": [{"agent": "editor", "as": "helper", "description": "x"}], "hand_to": ["editor"], "max_asked": 3}
PERMISSIONS: Json = {
    "read_outboxes": ["editor", "human"],
    "tools": ["file_write", "memory_*"],
    "file_access": {"allow_read": ["./shared"], "allow_write": ["./workspace"]},
}
LINE: Json = {
    "provider": "openai", "model": "gpt", "per_call": 1.0, "attempts": 2, "prompt": "full",
    "max_output_tokens": 9,
}  # fmt: skip


def right() -> dict[str, Json]:
    """Return the files of an organisation of which nothing is wrong."""
    servers = {"files": {"command": ["true"]}}
    ada = resume("ada", team=TEAM, permissions=PERMISSIONS, credits={"max_credits": 9.0, "soft_cap": 5.0})
    ada["gates"] = [ASK, {**GATE, "tool": "file_write"}]
    return copy.deepcopy({
        ORG: {"gates": [GATE, FIELD, LIMIT, KEYS, OUT, LABEL], "trust": TRUST},
        MODELS: {
            "scripted": {"provider": "scripted", "options": {"file": "config/answers.jsonl"}},
            "gpt": LINE,
        },
        CREDITS: {"editor": {"max_credits": 5.0}},
        "config/mcp.json": {"servers": servers},
        ADA: ada,
        "agents/editor/resume.json": resume("editor", permissions={"read_outboxes": ["ada"]}),
        "agents/human/resume.json": resume(
            "human", model={"key": "human"}, permissions={"read_outboxes": ["*"]}
        ),
    })  # fmt: skip


# --- slips of the pen -------------------------------------------------------------------------------


def without(at: int) -> Callable[[str], str]:
    return lambda word: word[:at] + word[at + 1 :]


def swapped(at: int) -> Callable[[str], str]:
    return lambda word: word[:at] + word[at + 1 : at + 2] + word[at : at + 1] + word[at + 2 :]


def doubled(at: int) -> Callable[[str], str]:
    return lambda word: word[: at + 1] + word[at : at + 1] + word[at + 1 :]


def instead(at: int, letter: str) -> Callable[[str], str]:
    return lambda word: word[:at] + letter + word[at + 1 :]


SLIPS: list[Callable[[str], str]] = [
    *(without(at) for at in (0, 1, 2, 3)),
    *(swapped(at) for at in (0, 1, 2)),
    *(doubled(at) for at in (0, 1, 2)),
    *(instead(at, letter) for at, letter in ((0, "x"), (1, "q"), (2, "y"), (3, "z"))),
    lambda word: f"{word}s",
    lambda word: word.removesuffix("s") if word.endswith("s") else f"{word}_",
    str.upper,
    str.capitalize,
    lambda word: f" {word}",
    lambda word: f"{word} ",
    lambda word: word.replace("_", "-") if "_" in word else f"-{word}",
    lambda word: f"{word}*x",
]


def keys_and_words(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield each key in a JSON value, and each text that names something, with its place."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*place, key), "key"
            yield from keys_and_words(inner, (*place, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from keys_and_words(inner, (*place, index))
    elif isinstance(value, str):
        yield place, "word"


FREE = {"description", "as", "because", "order", "provider", "model", "args", "window"}
"""Words that may be any, or that are asked for by another name when they are used."""
FREE_WORDS = {"/etc", "shared/reports/*", "x", "scripted"}


def is_free(file: str, place: tuple[str | int, ...], kind: str, files: dict[str, Json]) -> bool:
    above: Any = files[file]
    for part in place[:-1]:
        above = above[part]
    return kind == "word" and (bool({*map(str, place)} & FREE) or above[place[-1]] in FREE_WORDS)


TABLES: dict[str, tuple[str, tuple[str | int, ...]]] = {
    "a gate of all": (ORG, ("gates", 0)),
    "a gate with a field": (ORG, ("gates", 1)),
    "a gate of one": (ADA, ("gates", 0)),
    "a grant": (ADA, ("permissions",)),
    "a limit": (ORG, ("gates", 2)),
    "a limit of models": (ORG, ("gates", 3)),
    "a gate of targets": (ORG, ("gates", 4)),
    "a gate of labels": (ORG, ("gates", 5)),
    "credits": (ADA, ("credits",)),
    "an allocation": (CREDITS, ()),
    "trust": (ORG, ("trust",)),
    "a team": (ADA, ("team",)),
    "a model's line": (MODELS, ("gpt",)),
}


def mistakes(table: str) -> Iterator[tuple[str, dict[str, Json]]]:
    """Yield the files with one mistake each, and what it is."""
    file, root = TABLES[table]
    files = right()
    inner: Any = files[file]
    for part in root:
        inner = inner[part]
    for number, (below, kind) in enumerate(list(keys_and_words(inner))):
        place = (*root, *below)
        if is_free(file, place, kind, files):
            continue
        for slip in SLIPS if EVERYTHING else SLIPS[number % 3 :: 3]:
            wrong = right()
            above: Any = wrong[file]
            for part in place[:-1]:
                above = above[part]
            last = place[-1]
            word = str(last) if kind == "key" else str(above[last])
            if slip(word) in ("", word) or slip(word).startswith(("mcp.files.", "/", ".//")):
                continue  # what a server has, only the server says; any absolute folder may be meant
            if kind == "word":
                above[last] = slip(word)
            else:  # at the same place among the keys
                items = [(slip(key) if key == last else key, item) for key, item in above.items()]
                above.clear()
                above.update(items)
            yield f"{file} {'/'.join(map(str, place))} {kind}: {slip(word)!r}", wrong


def problems_with(base: Path, files: dict[str, Json]) -> list[Problem]:
    """Return what stops the run, or takes an agent out; nothing where everything would run."""
    for file, plain in files.items():
        fs.write_atomic(base, file, dump_pretty(plain))
    org = Organisation(base)
    try:
        config = load_config(org)
        found = validate_survey(org, config, survey_agents(org))
    except ConfigError as error:
        return list(error.problems)
    return [*found.settings_problems, *(it for error in found.survey.broken.values() for it in error.problems)]


def says_more(problem: Problem) -> bool:
    """Return whether a problem says what to write instead, in its hint or within its sentence."""
    return bool(problem.hint) or problem.message.endswith(")") or "a label of order" in problem.message


def test_the_right_files_are_right(base: Path) -> None:
    make_org(base)
    assert problems_with(base, right()) == []


@pytest.mark.sample(3)
@pytest.mark.parametrize("table", TABLES)
def test_no_typing_mistake_runs(table: str, base: Path) -> None:
    make_org(base)
    passed, unplaced, tried = [], [], 0
    for said, wrong in mistakes(table):
        tried += 1
        found = [it for it in problems_with(base, wrong) if it.severity == "error"]
        if not found:
            passed.append(said)
        elif not any(
            it.file == said.split(" ")[0] and it.line and (it.hint or it.message.endswith(")")) for it in found
        ):
            unplaced.append((said, found[0]))
    assert passed == []
    assert unplaced == []
    assert tried >= (40 if EVERYTHING else 13)


def when(field: str, value: Any, op: str = "is", **gate: Any) -> Json:
    return {"at": "call", "then": "block", "when": {"field": field, "op": op, "value": value}, **gate}


IN_GATES: dict[str, tuple[Json, str, str]] = {
    "no tool": ({"at": "call", "then": "pass", "tool": []}, "/tool", "must not be empty"),
    "no class": ({"at": "call", "then": "pass", "class": []}, "/class", "must not be empty"),
    "another judge": ({"at": "out", "then": "block", "by": "editr"}, "/by", 'did you mean "editor"?'),
    "another key": ({"at": "out", "then": "block", "by": {"model": "gtp"}}, "/by", 'did you mean "gpt"?'),
    "a limit of no model": (
        {**LIMIT, "when": {"field": "model", "op": "is", "value": "gtp"}},
        "/when/value",
        'did you mean "gpt"?',
    ),
    "a limit of no provider": (
        {**LIMIT, "when": {"field": "provider", "op": "in", "value": ["opnai"]}},
        "/when/value",
        'did you mean "openai"?',
    ),
    "a number for a path": (when("args.path", 1, tool="file_write"), "/when/value", "use string"),
    "quotes around true": (when("own", "true"), "/when/value", "use true or false"),
    "quotes around a number": (when("tick", "7"), "/when/value", "use a number"),
    "quotes around a number that is compared": (
        {"at": "call", "then": "block", "when": {"field": "tick", "op": "ge", "value": "7"}},
        "/when/value",
        "use a number",
    ),
    "a truth for a number": (when("tick", True), "/when/value", "use a number"),
    "a folder with a slip, where a path begins": (
        {
            "at": "call",
            "then": "block",
            "tool": "file_write",
            "when": {"field": "args.path", "op": "starts_with", "value": "shraed/"},
        },
        "/when/value",
        'did you mean "shared"?',
    ),
    "a folder with a slip, in an argument": (
        {"at": "call", "then": "block", "tool": "file_write", "args": {"path": "workspce/*"}},
        "/args/path",
        'did you mean "workspace"?',
    ),
    "a keyword with a slip of two letters": (
        {"at": "out", "then": "block", "schema": {"propertys": {"a": {}}}},
        "/schema/propertys",
        'did you mean "properties"?',
    ),
    "an operation that is none": (
        {"at": "call", "then": "block", "when": {"field": "tool", "op": "match", "value": "x"}},
        "/when/op",
        'did you mean "matches"?',
    ),
    "an expression that is none": (
        {"at": "out", "then": "block", "deny": ["ok", "["]},
        "/deny/1",
        "expected a regular expression",
    ),
    "a window that is none": (
        {"at": "spend", "then": "block", "calls": 1, "per": "agent", "window": "1w"},
        "/window",
        '"7d"',
    ),
    "a time that is none": ({"at": "call", "then": "ask", "tool": "file_write", "expires": "2 hrs"}, "/expires", "2h"),
    "a judge's key with a slip": (
        {"at": "out", "then": "block", "by": {"agnet": "editor"}, "policy": "x"},
        "/by",
        'did you mean "agent"?',
    ),
    "the beginning of a word": (
        {"at": "spend", "then": "block", "calls": 1, "per": "org"},
        "/per",
        'did you mean "organisation"?',
    ),
    "a schema that checks nothing": (
        {"at": "out", "then": "block", "schema": {"properties": {"a": {"minLenght": 3}}}},
        "/schema/properties/a/minLenght",
        'did you mean "minLength"?',
    ),
    "a pattern of nothing": ({"at": "call", "then": "ask", "tool": "fle_*"}, "/tool", 'did you mean "file_*"?'),
}


@pytest.mark.parametrize("case", IN_GATES)
def test_no_gate_runs_that_is_about_nothing(case: str, base: Path) -> None:
    gate, pointer, hint = IN_GATES[case]
    make_org(base)
    for file, place in ((ORG, "/gates/6"), (ADA, "/gates/2")):
        files = right()
        files[file]["gates"].append(gate)
        (problem,) = problems_with(base, files)
        assert (problem.file, problem.pointer) == (file, f"{place}{pointer}")
        assert problem.line
        assert hint in f"{problem.message} {problem.hint}"


def test_a_rule_looks_at_what_its_channel_makes_sure_of(base: Path) -> None:
    make_org(base)
    files = right()
    files[MODELS]["post"] = {"provider": "http"}
    files["agents/shop/resume.json"] = resume("shop", model={"key": "post"})
    rule: Json = {"from": "shop", "when": {"field": "verified.secret", "op": "is", "value": "X"}, "is": "known"}
    files[ORG]["trust"]["rules"].append(rule)
    assert problems_with(base, files) == []
    rule["when"]["field"] = "verified.secrt"
    (problem,) = problems_with(base, files)
    assert (problem.pointer, problem.hint) == ("/trust/rules/1/when", 'did you mean "verified.secret"?')
    rule["when"]["field"] = "verified.zzzzzzzzzz"
    assert problems_with(base, files)[0].hint == "verified fields: verified.secret, verified.token"


def test_whom_nobody_knows_judges_nothing(base: Path) -> None:
    make_org(base)
    files = right()
    files[ADA]["team"]["ask"][0]["verify"] = {"by": "editr"}
    files[ADA]["verify"] = {"by": {"agent": "gpt"}}
    own, asked = problems_with(base, files)
    assert (own.pointer, own.message) == ("/verify/by", 'there is no agent "gpt"')
    assert (asked.pointer, asked.hint) == ("/team/ask/0/verify/by", 'did you mean "editor"?')


def test_a_folder_is_granted_by_its_name(base: Path) -> None:
    make_org(base)
    files = right()
    files[ADA]["permissions"]["file_access"]["allow_write"] = ["./workspace/*"]
    (problem,) = problems_with(base, files)
    assert problem.pointer == "/permissions/file_access/allow_write/0"
    assert "a grant covers all files below a folder" in problem.message


def test_what_is_demanded_of_entries_is_demanded(base: Path) -> None:
    make_org(base)
    files = right()
    files[ADA]["output"] = {"schema": {"requried": ["text"], "x-note": 1, "properties": {"requried": {}}}}
    (problem,) = problems_with(base, files)
    assert (problem.pointer, problem.hint) == ("/output/schema/requried", 'did you mean "required"?')
