"""Journals that somebody wrote by hand, checksums and all: whatever they say, it is told and never obeyed."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from recorded import busy_org
from sampling import EVERYTHING

from lemming.cli import run
from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState, ProviderError, RateLimited, restore_error
from lemming.kernel.files import fs
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.journal_file import last_record, read_journal
from lemming.kernel.journal.journal_parser import InvalidRecord, parse_record
from lemming.kernel.journal.journal_records import TickStarted
from lemming.queries.format_schemas import get_schema, record_classes
from lemming.testing import journal_lines, tree

LAST = 8
ODD = [None, True, -1, 0.5, 10**15, "", "x", "../x", "\x1b]0;", [], [None], ["../../x"], {}, {"x": None}]
LOOKS = [
    ["status"], ["verify"], ["replay"], ["repair"], ["tick", str(LAST)], ["doctor"], ["plan"],
    ["why", "ada/memory/m"], ["history"], ["prompt", "ada"], ["inbox", "ada"], ["validate"], ["logs"],
]  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An organisation whose last tick was interrupted, with a record of every kind in its journal."""
    base = busy_org(tmp_path_factory.mktemp("made") / "org")
    write_journal(base, LAST, unfinished(journal_lines(base, LAST), journal_lines(base, 1)))
    fs.write_atomic(base, paths.TICK_FILE, b'{"current_tick": %d}' % LAST)
    return base


def unfinished(records: list[Json], first: list[Json]) -> list[Json]:
    """Return records of every kind as an interrupted tick may have left them."""
    items = [{"custom_id": "8-ada-0-x", "agent": "ada", "call": 0}]
    batch = {"label": "l", "provider": "scripted", "model": "m", "at": "2026-01-01T00:00:00Z", "items": items}
    tool = next(record for record in first if record["type"] == "tool_finished")
    extra = {
        "model_replied": [
            {"type": "model_failed", "agent": "ada", "call": 1, "error": "RateLimited", "message": "later"},
            {**tool, "index": 0},
            {"type": "tool_started", "agent": "ada", "index": 1, "tool": "bell", "args": {}},
        ],
        "turn_started": [
            {"type": "model_reserved", "agent": "ada", "call": 0, "key": "m", "credits": 1, "cost_usd": None},
            {"type": "model_started", "agent": "ada", "call": 0},
            {"type": "turn_stopped", "agent": "ada"},
            {"type": "turn_resumed", "agent": "ada"},
            {"type": "batch_announced", **batch},
            {"type": "batch_sent", "batch": "b", **batch},
            {"type": "batch_awaited", "agent": "ada", "call": 0, "batch": "b"},
            {"type": "batch_ended", "batch": "b", "replies": 0, "live": 1, "problem": ""},
            {"type": "turn_told", "agent": "ada", "call": 0, "entries": {"human/00000008_x": "a line"}},
            {"type": "gate_asked", "agent": "ada", "number": 0, "function": "f", "found": None, "error": ""},
            {"type": "turn_answered", "agent": "ada"},
        ],
    }
    made: list[Json] = []
    for record in records:
        if record["type"] == "tick_committed" or (record["type"], record.get("agent")) == ("turn_committed", "ada"):
            continue
        made.append(record)
        if record.get("agent") == "ada":
            made += extra.get(record["type"], [])
    expired = {"type": "entries_expired", "files": ["agents/ada/outbox/00000001_000000000000.json"]}
    made += [] if any(record["type"] == "entries_expired" for record in made) else [expired]
    return [{"epoch": 1, **record} for record in made]


def write_journal(base: Path, tick: int, records: list[Json]) -> None:
    """Write a journal with right checksums, whatever its records say."""
    written, check = b"", b""
    for record in records:
        body = json.dumps(record).encode()[:-1]
        check = blake2b(body, digest_size=8, key=check).hexdigest().encode()
        written += b'%b,"check":"%b"}\n' % (body, check)
    fs.write_atomic(base, paths.journal_file(tick), written)


def places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to everything in a value; of a list, to its first item."""
    if way:
        yield way
    children = (
        value.items() if isinstance(value, dict) else list(enumerate(value))[:1] if isinstance(value, list) else ()
    )
    for key, child in children:
        yield from places(child, (*way, key))


def changed(record: Json, way: tuple[Any, ...], value: Any, *, drop: bool = False) -> Json:
    other = copy.deepcopy(record)
    inner: Any = other
    for key in way[:-1]:
        inner = inner[key]
    if drop:
        del inner[way[-1]]
    else:
        inner[way[-1]] = value
    return other


def is_wrong(plain: Json) -> bool:
    try:
        parse_record(plain)
    except InvalidRecord:
        return True
    return False


@pytest.fixture(scope="module")
def mutants(made: Path) -> list[tuple[list[Json], bool]]:
    """The journal with one thing changed in it, for each kind, key and odd value; whether that is wrong."""
    return [*mutants_of(made)]


def mutants_of(base: Path) -> Iterator[tuple[list[Json], bool]]:
    records, seen = journal_lines(base, LAST), set[tuple[str, ...]]()
    for place, record in enumerate(records):
        for way in places(record):
            kind = record["type"], *(key for key in way if isinstance(key, str))
            if kind in seen:
                continue
            seen.add(kind)
            for value in ODD:
                other = changed(record, way, value)
                yield [*records[:place], other, *records[place + 1 :]], is_wrong(other)
            other = changed(record, way, None, drop=True)
            yield [*records[:place], other, *records[place + 1 :]], is_wrong(other)
        yield [*records[:place], *records[place + 1 :]], False
        yield [*records[:place], {"type": "made_up"}, *records[place + 1 :]], True


def test_it_holds_every_kind_but_the_end(made: Path) -> None:
    assert {record["type"] for record in journal_lines(made, LAST)} == {*record_classes()} - {"tick_committed"}


def test_every_line_that_an_organisation_with_a_past_has_fits_the_printed_schema(made: Path) -> None:
    validator = Draft202012Validator(get_schema("journal"))
    for journal in (made / paths.JOURNALS).glob("*.jsonl"):
        for line in journal.read_text().splitlines():
            assert [error.message for error in validator.iter_errors(json.loads(line))] == []


@pytest.mark.long
def test_an_odd_record_is_told_with_its_line_by_who_reads_it(
    mutants: list[tuple[list[Json], bool]], tmp_path: Path
) -> None:
    refused = 0
    for records, is_wrong in mutants[::5]:
        if is_wrong:
            write_journal(tmp_path, LAST, records)
            with pytest.raises(CorruptState, match=r"00000008\.jsonl:[0-9]+: .*move it away") as error:
                read_journal(tmp_path, LAST)
            assert error.value.exit_status == 7
            refused += 1
    assert refused > 300


@pytest.mark.sample(3)
@pytest.mark.crash
@pytest.mark.parametrize("command", [*LOOKS, ["run-once"]], ids=lambda words: words[0])
def test_no_odd_record_ends_a_command_in_an_internal_error(
    command: list[str],
    made: Path,
    mutants: list[tuple[list[Json], bool]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    every = 127 if EVERYTHING else 1021
    tried = [records for records, _ in mutants[len(command[0]) :: every]]  # not the same for all commands
    base = shutil.copytree(made, tmp_path / "org")
    for records in tried:
        if command == ["run-once"]:
            shutil.rmtree(base)
            shutil.copytree(made, base)
        write_journal(base, LAST, records)
        status = run(["-C", str(base), *command])
        assert status != 70, capsys.readouterr().err
        capsys.readouterr()


@pytest.mark.parametrize("command", [*LOOKS, ["run-once"]], ids=lambda words: words[0])
def test_an_empty_journal_is_a_tick_that_has_not_begun(
    command: list[str], made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = shutil.copytree(made, tmp_path / "org")
    fs.write_atomic(base, paths.journal_file(LAST), b"")
    assert run(["-C", str(base), *command]) != 70
    assert "internal error" not in capsys.readouterr().err


def test_what_is_refused_leaves_the_organisation_as_it_was(made: Path, tmp_path: Path) -> None:
    base = shutil.copytree(made, tmp_path / "org")
    records = [{**r, "agent": "../x"} if r["type"] == "model_replied" else r for r in journal_lines(base, LAST)]
    write_journal(base, LAST, records)
    before = tree(base)
    assert run(["-C", str(base), "run-once"]) == 7
    assert tree(base) == before


@pytest.mark.parametrize(
    ("records", "why"),
    [
        (lambda rs: rs[1:], "the first record must be the only tick_started"),
        (lambda rs: [rs[0], *rs], "the first record must be the only tick_started"),
        (lambda rs: [{**rs[0], "tick": 3}, *rs[1:]], "got 3; rename the file"),
        (lambda rs: [{**rs[0], "order": ["bob"]}, *rs[1:]], '"ada" has no turn in this tick'),
        (lambda rs: [rs[0], *rs[2:]], "the turn of ada has not started"),
        (lambda rs: [rs[0], rs[1], *rs[1:]], "the turn of ada starts twice"),
        (lambda rs: [rs[0], {**rs[1], "resume": {**rs[1]["resume"], "name": "bob"}}], "must be ada, got"),
    ],
)  # fmt: skip
def test_records_that_cannot_follow_each_other_are_refused(records: Any, why: str, made: Path, tmp_path: Path) -> None:
    write_journal(tmp_path, LAST, records(journal_lines(made, LAST)))
    with pytest.raises(CorruptState, match=why):
        read_journal(tmp_path, LAST)


def test_keys_that_a_later_version_adds_are_passed_over(made: Path, tmp_path: Path) -> None:
    write_journal(tmp_path, LAST, [{**record, "new": 1} for record in journal_lines(made, LAST)])
    assert read_journal(tmp_path, LAST) == read_journal(made, LAST)


def test_keys_that_an_earlier_version_did_not_write_are_what_they_were_then(tmp_path: Path) -> None:
    write_journal(
        tmp_path, LAST, [{"type": "tick_started", "epoch": 1, "at": "2026-01-01T09:00:00Z", "tick": LAST, "order": []}]
    )
    (plan,) = read_journal(tmp_path, LAST)
    assert isinstance(plan, TickStarted)
    assert (plan.boot, plan.after, plan.not_due, plan.skipped, plan.broken) == ("", None, [], {}, {})


def test_a_record_is_written_as_it_was_read(made: Path) -> None:
    lines = journal_lines(made, 1)
    assert len(lines) > 10
    for line in lines:
        record = parse_record(line)
        assert {"type": record.kind, "epoch": 1, **record.as_json()} == line
        assert [*record.as_json()] == [*line][2:]


def test_a_record_does_not_change(made: Path) -> None:
    with pytest.raises(AttributeError):
        read_journal(made, 1)[0].at = "later"  # type: ignore[attr-defined]


def test_a_last_line_of_an_unknown_kind_says_nothing(tmp_path: Path) -> None:
    write_journal(tmp_path, LAST, [{"type": "tick_committed", "advanced": "yes"}])
    assert last_record(tmp_path, LAST) is None


def test_the_name_of_a_recorded_error_chooses_among_those_of_a_model_call_only() -> None:
    assert type(restore_error("RateLimited", "x")) is RateLimited
    for name in ("asdict", "annotations", "DiskError", "LemmingError", "__builtins__", "nonsense", ""):
        assert type(restore_error(name, "x")) is ProviderError
