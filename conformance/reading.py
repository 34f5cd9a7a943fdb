"""What an engine has left in a folder, read by the specification alone."""

from __future__ import annotations

import json
import re
from hashlib import blake2b
from pathlib import Path
from typing import Any

_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_CHECK = re.compile(rb',"check":"([0-9a-f]{16})"}')


class Broken(AssertionError):
    """The engine does not do what the specification says."""


def require(holds: bool, what: str) -> None:
    """Raise `Broken` unless something holds."""
    if not holds:
        raise Broken(what)


def same(found: object, expected: object, what: str) -> None:
    """Raise `Broken` unless two values are equal."""
    require(found == expected, f"{what}: {found!r}, and not {expected!r}")


def journal_of(base: Path, tick: int) -> Path:
    """Return where the journal of a tick stands."""
    return base / f"logs/ticks/{tick:08}.jsonl"


def check_of(body: bytes, previous: bytes) -> bytes:
    """Return the `check` of a line: `body` is the line up to `,"check":`, `previous` the check before it."""
    return blake2b(body, digest_size=8, key=previous).hexdigest().encode()


def records_in(raw: bytes) -> list[dict[str, Any]]:
    """Return the intact records of a journal; raise `Broken` for a line before the last that is none."""
    lines, previous = raw.splitlines(keepends=True), b""
    records = []
    for number, line in enumerate(lines, 1):
        match = _CHECK.search(line)
        body = line[: match.start()] if match else b""
        if match is None or not line.endswith(b"}\n") or match[1] != check_of(body, previous):
            require(number == len(lines), f"line {number} of a journal has no valid check: {line[:120]!r}")
            break
        previous = match[1]
        records.append(json.loads(line))
    return records


def records_of(base: Path, tick: int) -> list[dict[str, Any]]:
    """Return the intact records of a tick; none where it has no journal."""
    file = journal_of(base, tick)
    return records_in(file.read_bytes()) if file.exists() else []


def of_type(records: list[dict[str, Any]], *types: str) -> list[dict[str, Any]]:
    """Return the records of some types."""
    return [record for record in records if record["type"] in types]


def answered(base: Path, ticks: int) -> set[tuple[int, str, int]]:
    """Return the calls whose answers are in the journals, as tick, agent and number."""
    return {
        (tick, record["agent"], record["call"])
        for tick in range(1, ticks + 1)
        for record in of_type(records_of(base, tick), "model_replied")
    }


def with_line(raw: bytes, plain: dict[str, Any]) -> bytes:
    """Return a journal with one more line, its check a valid one."""
    previous = json.loads(raw.splitlines()[-1])["check"].encode() if raw else b""
    body = json.dumps(plain, separators=(",", ":")).encode()[:-1]
    return raw + body + b',"check":"' + check_of(body, previous) + b'"}\n'


def entry_id(tick: int, agent: str, index: int) -> str:
    """Return the id of the entry that an agent writes as number `index` in a tick."""
    return blake2b(f"{tick}/{agent}/{index}".encode(), digest_size=6).hexdigest()


def entries_of(base: Path, agent: str) -> list[dict[str, Any]]:
    """Return the entries in an outbox, in the order of their files' names."""
    return [
        json.loads(file.read_bytes()) for file in sorted((base / f"agents/{agent}/outbox").glob("*.json"))
    ]


def texts_of(base: Path, agent: str) -> list[str]:
    """Return the texts in an outbox, sorted."""
    return sorted(entry["payload"].get("text", "") for entry in entries_of(base, agent))


def ledger_of(base: Path, agent: str) -> list[dict[str, Any]]:
    """Return the whole lines of a ledger."""
    file = base / f"agents/{agent}/turns.jsonl"
    raw = file.read_bytes() if file.exists() else b""
    return [json.loads(line) for line in raw.splitlines(keepends=True) if line.endswith(b"\n")]


def state_of(base: Path) -> dict[str, bytes]:
    """Return what turns made of an organisation, by path: no settings, and the times of day blanked."""
    made = {path: raw for path, raw in files_of(base).items() if not path.startswith("config/")}
    return {path: _TIME.sub(b"-", raw) for path, raw in made.items()}


def files_of(base: Path) -> dict[str, bytes]:
    """Return every file that is state, by path: no logs, and nothing that is throw-away."""
    found = {}
    for file in sorted(base.rglob("*")):
        inner = file.relative_to(base)
        is_left_out = inner.parts[0] == ".lemming" or "logs" in inner.parts
        if is_left_out or (inner.name.startswith(".") and inner.name.endswith(".tmp")) or file.is_dir():
            continue
        found[str(inner)] = b"a link" if file.is_symlink() else file.read_bytes()
    return found


def differences(found: dict[str, bytes], expected: dict[str, bytes]) -> list[str]:
    """Return in which files two states differ."""
    return sorted(path for path in {*found, *expected} if found.get(path) != expected.get(path))
