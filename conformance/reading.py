"""Readers for the files of an engine, written from the specification alone."""

from __future__ import annotations

import json
import re
from hashlib import blake2b
from pathlib import Path
from typing import Any

_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_CHECK = re.compile(rb',"check":"([0-9a-f]{16})"}')


class Violation(AssertionError):
    """The engine violates the specification."""


def require(condition: bool, message: str) -> None:
    """Raise `Violation` if a condition is false."""
    if not condition:
        raise Violation(message)


def require_equal(actual: object, expected: object, subject: str) -> None:
    """Raise `Violation` if two values differ."""
    require(actual == expected, f"{subject}: {actual!r}, and not {expected!r}")


def journal_path(base: Path, tick: int) -> Path:
    """Return the path of a tick's journal."""
    return base / f"logs/ticks/{tick:08}.jsonl"


def compute_check(body: bytes, previous: bytes) -> bytes:
    """Return the `check` of a line.

    `body` is the line before the key `check`, and `previous` the preceding check.
    """
    return blake2b(body, digest_size=8, key=previous).hexdigest().encode()


def parse_records(raw: bytes) -> list[dict[str, Any]]:
    """Return the intact records of a journal.

    Raises: Violation for an invalid line before the last line.
    """
    lines, previous = raw.splitlines(keepends=True), b""
    records = []
    for number, line in enumerate(lines, 1):
        match = _CHECK.search(line)
        body = line[: match.start()] if match else b""
        if match is None or not line.endswith(b"}\n") or match[1] != compute_check(body, previous):
            require(number == len(lines), f"line {number} of a journal has no valid check: {line[:120]!r}")
            break
        previous = match[1]
        records.append(json.loads(line))
    return records


def load_records(base: Path, tick: int) -> list[dict[str, Any]]:
    """Return the intact records of a tick, or an empty list without a journal."""
    file = journal_path(base, tick)
    return parse_records(file.read_bytes()) if file.exists() else []


def filter_by_type(records: list[dict[str, Any]], *types: str) -> list[dict[str, Any]]:
    """Return the records of the given types."""
    return [record for record in records if record["type"] in types]


def find_answered_calls(base: Path, ticks: int) -> set[tuple[int, str, int]]:
    """Return the calls with a recorded answer, as tick, agent and number."""
    return {
        (tick, record["agent"], record["call"])
        for tick in range(1, ticks + 1)
        for record in filter_by_type(load_records(base, tick), "model_replied")
    }


def append_line(raw: bytes, record: dict[str, Any]) -> bytes:
    """Return a journal with a further line and a valid check."""
    previous = json.loads(raw.splitlines()[-1])["check"].encode() if raw else b""
    body = json.dumps(record, separators=(",", ":")).encode()[:-1]
    return raw + body + b',"check":"' + compute_check(body, previous) + b'"}\n'


def compute_entry_id(tick: int, agent: str, index: int) -> str:
    """Return the id of an agent's entry number `index` in a tick."""
    return blake2b(f"{tick}/{agent}/{index}".encode(), digest_size=6).hexdigest()


def load_entries(base: Path, agent: str) -> list[dict[str, Any]]:
    """Return the entries of an outbox, in order of the file names."""
    return [json.loads(file.read_bytes()) for file in sorted((base / f"agents/{agent}/outbox").glob("*.json"))]


def load_texts(base: Path, agent: str) -> list[str]:
    """Return the texts of an outbox, sorted."""
    return sorted(entry["payload"].get("text", "") for entry in load_entries(base, agent))


def load_ledger(base: Path, agent: str) -> list[dict[str, Any]]:
    """Return the complete lines of a ledger."""
    file = base / f"agents/{agent}/turns.jsonl"
    raw = file.read_bytes() if file.exists() else b""
    return [json.loads(line) for line in raw.splitlines(keepends=True) if line.endswith(b"\n")]


def load_state(base: Path) -> dict[str, bytes]:
    """Return the files written by turns, by path: without settings, and with times of day blanked."""
    files = {path: raw for path, raw in load_state_files(base).items() if not path.startswith("config/")}
    return {path: _TIME.sub(b"-", raw) for path, raw in files.items()}


def load_state_files(base: Path) -> dict[str, bytes]:
    """Return all state files by path, without logs and caches."""
    files = {}
    for file in sorted(base.rglob("*")):
        inner = file.relative_to(base)
        is_excluded = inner.parts[0] == ".lemming" or "logs" in inner.parts
        if is_excluded or (inner.name.startswith(".") and inner.name.endswith(".tmp")) or file.is_dir():
            continue
        files[str(inner)] = b"a link" if file.is_symlink() else file.read_bytes()
    return files


def find_differences(actual: dict[str, bytes], expected: dict[str, bytes]) -> list[str]:
    """Return the paths with different content in two states."""
    return sorted(path for path in {*actual, *expected} if actual.get(path) != expected.get(path))
