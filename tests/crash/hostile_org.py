"""An organisation of the usual parts, hostile values, and every way in which a file can be broken."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from parts import by_hand

import lemming
from lemming.engine import run_once
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.tools import SHIPPED, get_toolset
from lemming.testing import SCRIPT_FILE, FrozenClock, make_org, resume, say

DOCS = Path(__file__).parents[2] / "docs"
VICTIM = "ada"
"""The agent that everything hostile is addressed to, or belongs to."""


class Raw(str):
    """A text that stands in JSON as it is: what Python's own writer would not write."""

    __slots__ = ()


def nested(depth: int, *, key: str = "") -> Raw:
    """Return lists, or objects, in each other."""
    return Raw(f'{{"{key}":' * depth + "1" + "}" * depth if key else "[" * depth + "]" * depth)


VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**70), 0.5, 1e308, -1e-320, Raw("1e999"),
    Raw("-1e999"), Raw("NaN"), Raw("Infinity"), Raw("9" * 5000), Raw("-" + "9" * 5000),
    Raw("1" + "0" * 4400 + ".5"), "", " ", "\n", "\0", "a\0b", "\ud800", "\udfff\ud800", "\ufeff",
    "\u202e\u2066", "\x1b[2J", "ß" * 300, "名" * 100, "x" * 70_000, "a" * 300, "9" * 5000,
    "a/" + "9" * 5000 + "_x", "human/00000000_0123456789ab", "human/0/0", "/", "//", ".", "..",
    "../../../etc/passwd", "/etc/passwd", "/dev/zero", "./shared", "agents/bob/resume.json",
    "workspace/a\0b", "~/x", "C:\\x", "file:///etc/passwd", "http://[::1", "http://0x7f.1/",
    "http://a..b/", "http://x:99999/", "http://\ud800/", "2026-01-01T00:00:00Z",
    "9999-12-31T23:59:00-05:00", "0001-01-01T00:00:00+05:00", "2026-02-30T00:00:00Z",
    "2026-01-01T00:00:00.000000000001Z", "0 0 31 2 *", "* * * * *", "99999999999h", "1e9d", "-1h", "nan",
    "inf", "Infinity", "1_000", "٣", "²", "true", "null", "[]", "{}", "*", "**", "a*" * 40, "^(a+)+$",
    "(?<=a)b", "[", "(", "\\", "%s%n", "{{start}}", "{{steps.a.b}}", "{{", "{0.__class__}", "$(id)",
    "bob", VICTIM, "human", "nobody", "mcp.x.y", "ask_bob", "human/1", "0123456789ab", "expr", "LMG-404",
    [], [[]], {}, [None], [1, "a", None], ["bob", ["bob"]], [{}], {"": ""}, {"a": None}, {"bob": "human"},
    {"\0": 1}, {"\ud800": 1}, {"__proto__": 1}, {"$ref": "#"}, {"type": "object", "$ref": "#/nowhere"},
    {"type": "string", "pattern": "^(a+)+$"}, {"patternProperties": {"(a+)+$": {}}}, {"type": ["x"]},
    {"anyOf": []}, {"enum": []}, {"allOf": [{"$ref": "#"}]}, {"minimum": "x"}, {"op": "is", "field": "x"},
    {"agent": []}, {"path": "../x", "sha256": 1}, [{"path": "\0", "sha256": "0" * 64, "bytes": -1}],
    {"steps": [{"ask": "bob"}]}, nested(70), nested(3000), nested(200, key="a"), nested(20_000),
    ["x"] * 5000, [[1] * 50] * 50,
]  # fmt: skip


def in_json(value: Any) -> str:
    """Return a value as JSON, with what no writer would write."""
    match value:
        case Raw():
            return str(value)
        case dict():
            return "{" + ",".join(f"{json.dumps(key)}:{in_json(it)}" for key, it in value.items()) + "}"
        case list():
            return "[" + ",".join(map(in_json, value)) + "]"
    return json.dumps(value)


def payload_keys() -> list[str]:
    """Return every key that the engine reads of an entry's payload, and those that the documentation has."""
    package, found = Path(lemming.__file__).parent, set[str]()
    for file in sorted(package.rglob("*.py")):
        text = file.read_text()
        found |= {*re.findall(r'payload\w*(?:\.get\(|\.pop\(|\[)\s*"([a-z_]+)"', text)}
        found |= {*re.findall(r'"([a-z_]+)" (?:not )?in (?:\w+\.)?payload', text)}
        found |= {*re.findall(r'\(\w*\.?payload, "([a-z_]+)"', text)}
        if "payload" in text or file.stem == "open_requests":
            named = re.findall(r'^[A-Z_, ]+ = ((?:"[a-z_]+"(?:, )?)+)$', text, re.MULTILINE)
            found |= {key for words in named for key in re.findall(r'"([a-z_]+)"', words)}
    for page in DOCS.glob("*.md"):
        found |= {*re.findall(r"`payload\.([a-z_0-9]+)", text := page.read_text())}
        if page.stem in ("requests", "gates"):
            rows = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
            found |= {key for row in rows for key in re.findall(r"`([a-z_]+)`", row)}
    return sorted(found)


def tool_arguments() -> dict[str, list[str]]:
    """Return the arguments of every tool that ships, but for `shell`, which runs whatever it is given."""
    tools = get_toolset(OrgSettings())
    return {name: [*tools[name].parameters.get("properties", {}), "more"] for name in SHIPPED if name != "shell"}


# --- the organisation ---------------------------------------------------------------------------


GATES: list[dict[str, Any]] = [
    {"at": "in", "redact": ["pin [0-9]+"], "then": "rewrite"},
    {"at": "call", "tool": "file_write", "args": {"path": ["never/*"]}, "then": "block"},
    {"at": "call", "tool": "http_post", "then": "ask"},
    {"at": "out", "max_length": 50_000, "then": "rewrite"},
    {"at": "out", "deny": ["never said"], "then": "block"},
]
ORG: dict[str, Any] = {"gates": GATES, "trust": {}, "timezone": "UTC", "max_parallel": 2, "visibility": "tick"}
MODELS: dict[str, Any] = {
    "human": {"provider": "human"},
    "default": {"provider": "scripted", "options": {"file": SCRIPT_FILE}},
    "desk": {"provider": "folder", "options": {"path": "in"}},
}
OTHERS_SCRIPT: list[dict[str, Any]] = [
    {"agent": "bob", "reply": say("bob", kind="report")},
    {"agent": "cyd", "reply": say("cyd", kind="status", memory_updates=[{"key": "k", "value": 1}])},
    {"reply": say("well")},
]


def make_hostile_org(base: Path, calls: list[Any] | None = None) -> Path:
    """Make an organisation of all kinds of agents in which nothing is hostile yet, and run two ticks."""
    may = {"tools": ["*"], "read_outboxes": ["*"], "file_access": {"allow_read": ["./shared", "./workspace"],
           "allow_write": ["./shared", "./workspace"]}}  # fmt: skip
    make_org(
        base,
        resume(VICTIM, permissions=may, skills=["*"], team={"ask": ["bob"]},
               context=[{"file": "./shared/notes.txt"}],
               gates=[{"at": "out", "deny": ["never"], "then": "block"}]),
        resume("bob", permissions={"read_outboxes": ["*"]}),
        resume("cyd", permissions={"read_outboxes": ["bob"]}, turn={"max_steps": 2}),
        resume("planner", model={"key": "plan"}, permissions={"read_outboxes": ["*"]}),
        resume("clock", model={"key": "clock"}),
        resume("desk", model={"key": "desk"}),
        resume("human", model={"key": "human"}, permissions={"read_outboxes": ["*"]}),
        script=[{"agent": VICTIM, "reply": say(VICTIM, memory_updates=[{"key": "own", "value": {"a": [1]}}])},
                *OTHERS_SCRIPT],
        models=MODELS, org=ORG,
    )  # fmt: skip
    fs.write_atomic(base, "shared/notes.txt", b"notes")
    fs.write_atomic(
        base, f"agents/{VICTIM}/skills/pdf/SKILL.md", b"---\nname: pdf\ndescription: PDFs.\n---\nRead it.\n"
    )
    fs.write_atomic(base, f"agents/{VICTIM}/workspace/a.txt", b"a text")
    steps = [{"name": "one", "ask": "bob", "task": "{{start}}"}, {"name": "two", "wait": {"ticks": 5}}]
    fs.write_atomic(base, "agents/planner/plan.json", dump_pretty({"steps": steps}))
    job = {"agent": "bob", "text": "daily", "cron": "0 8 * * *"}
    fs.write_atomic(base, "config/calendar.json", dump_pretty({"jobs": {"daily": job}}))
    fs.write_atomic(base, "config/credits.json", dump_pretty({VICTIM: {"max_credits": 100_000}}))
    for number, whom in enumerate((VICTIM, "bob", "planner")):
        by_hand(base, "human", 0, f"0123456789a{number}", text="what?", target=whom, conversation="talk")
    for _ in range(2):
        run_once(base, clock=FrozenClock())
    return base


def entry_text(payload: dict[str, Any], kind: Any, **more: Any) -> bytes:
    """Return an entry of the person's for the next tick as a file holds it."""
    entry = {"id": "fedcba987654", "tick": 2, "agent": "human", "kind": kind, "payload": payload, "tags": [],
             "created_at": "", **more}  # fmt: skip
    return in_json(entry).encode("utf-8", "surrogatepass")


# --- broken files -------------------------------------------------------------------------------


def _put(content: bytes) -> Callable[[Path], None]:
    def put(path: Path) -> None:
        _clear(path)
        path.write_bytes(content)

    return put


def _clear(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rename(path.with_name(f"{path.name}-aside"))
    else:
        path.unlink(missing_ok=True)


def _made(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def broken(path: Path) -> None:
        _clear(path)
        make(path)

    return broken


def _edited(edit: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def broken(path: Path) -> None:
        if path.is_file():
            path.write_bytes(edit(path.read_bytes()))
        else:
            _put(edit(b"{}"))(path)

    return broken


BROKEN: dict[str, Callable[[Path], None]] = {
    "gone": _clear,
    "empty": _put(b""),
    "white": _put(b" \n\t\n"),
    "a byte order mark": _edited(lambda raw: b"\xef\xbb\xbf" + raw),
    "UTF-16": _edited(lambda raw: raw.decode("utf-8", "replace").encode("utf-16")),
    "no UTF-8": _edited(lambda raw: raw[: len(raw) // 2] + b"\xff\xfe\xc0\x80" + raw[len(raw) // 2 :]),
    "NUL": _edited(lambda raw: raw[: len(raw) // 2] + b"\0" * 64 + raw[len(raw) // 2 :]),
    "cut": _edited(lambda raw: raw[: len(raw) // 2]),
    "twice": _edited(lambda raw: raw + raw),
    "null": _put(b"null\n"),
    "a list": _put(b"[]\n"),
    "an object": _put(b"{}\n"),
    "a text": _put(b'"x"\n'),
    "a number": _put(b"9" * 5000),
    "deep": _put(b"[" * 100_000),
    "huge": _put(b'"' + b"x" * (40 << 20) + b'"'),
    "a folder": _made(Path.mkdir),
    "a link to nothing": _made(lambda path: path.symlink_to("nowhere")),
    "a link to itself": _made(lambda path: path.symlink_to(path.name)),
    "a link out": _made(lambda path: path.symlink_to("/etc/passwd")),
    "a link to a folder": _made(lambda path: path.symlink_to("/")),
    "a pipe": _made(os.mkfifo),
}


def in_values(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each place within a value: what holds it, and its key."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, it in items:
        yield value, key
        yield from in_values(it)


def with_hostile_value(raw: bytes, random: Random) -> bytes:
    """Return a JSON file, or one of JSON lines, in which one value somewhere is another."""
    lines = raw.splitlines() if _is_lines(raw) else [raw]
    number = random.randrange(len(lines) or 1)
    try:
        document = json.loads(lines[number])
    except (ValueError, IndexError):
        return in_json(random.choice(VALUES)).encode("utf-8", "surrogatepass")
    places = [*in_values(document)]
    if not places or random.random() < 0.05:
        document = random.choice(VALUES)
    else:
        within, key = random.choice(places)
        match random.randrange(6):
            case 0 if isinstance(within, dict):
                del within[key]
            case 1 if isinstance(within, dict):
                within[random.choice(["x", "", "\ud800", str(key) + "s", "id", "name"])] = random.choice(VALUES)
            case _:
                within[key] = random.choice(VALUES)
    lines[number] = in_json(document).encode("utf-8", "surrogatepass")
    return b"\n".join(lines) + b"\n"


def _is_lines(raw: bytes) -> bool:
    first = raw.split(b"\n", 1)[0]
    return first.startswith(b"{") and first.endswith(b"}") and len(first) > 2


def hostile_calls(random: Random, arguments: dict[str, list[str]], many: int) -> list[Any]:
    """Return calls of tools that ship, with hostile arguments."""
    calls = []
    chosen = VALUES if random.random() < 0.1 else [it for it in VALUES if not isinstance(it, Raw)]
    for name in random.sample(sorted(arguments), many):
        args = {key: random.choice(chosen) for key in arguments[name] if random.random() < 0.8}
        calls.append({"tool": name, "args": args})
    return calls
