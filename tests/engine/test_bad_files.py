"""Files that people, editors and strangers leave in the folder: each with the message a person needs.

A bad resume, entry or memory takes out itself only; a bad setting or a bad clock stops the engine before
anything is paid for, and is left as it is.
"""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path

import pytest
from badly import GOOD, NAME_RULE, RESUME, Content, a_device, a_link_to, put, run_with

from lemming.engine import run_once
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.errors import ConfigError, CorruptState
from lemming.kernel.journal.engine_events import Event, ModelAsked
from lemming.kernel.journal.journal_file import read_journal
from lemming.testing import Crash, make_org, resume, tree


@pytest.fixture
def org(base: Path) -> Path:
    return make_org(base, resume("ada"), resume("zed"), org={"durability": "off"})


def schedule(literal: str) -> str:
    plain = resume("beta", schedule={"run_every_n_ticks": "N"})
    return json.dumps(plain, indent=2).replace('"N"', literal)


PUT_ONE = "put a regular file in its place"
A_LINK = "expected a regular file, got a symbolic link"
UNCLOSED = "close the quote, ] or }"
EMPTY = "the file is empty; write an object: { ... }"
TOO_LARGE = "number out of range: integers must fit in 53 bits (write a smaller number)"
LINES = GOOD.split("\n")
A_COMMA = f"{RESUME}:{len(LINES)}:1: a comma before }} or ] is not JSON"
AFTER = f"{RESUME}:{len(LINES)}:{len(LINES[-1]) + 1}"
EVERY = f"{RESUME}:14:5 /schedule/run_every_n_ticks"


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param('{"name": "beta", ', f"{RESUME}:1:18: unexpected end of JSON ({UNCLOSED})", id="truncated"),
        pytest.param(GOOD[:60], f"{RESUME}:5:5: unterminated string (close the quote)", id="truncated in a string"),
        pytest.param("", f"{RESUME}:1:1: unexpected end of JSON ({EMPTY})", id="empty"),
        pytest.param(
            b'{"name": "beta",\n "title": "caf\xff"}',
            f"{RESUME}:2:15: byte 0xff at offset 31 is not UTF-8 (save the file as UTF-8)",
            id="not UTF-8",
        ),
        pytest.param(
            GOOD.encode("utf-16"),
            f"{RESUME}:1:1: byte 0xff at offset 0 is not UTF-8 (save the file as UTF-8)",
            id="UTF-16",
        ),
        pytest.param("[]", f"{RESUME}:1:1: expected an object, got a list (start the file with {{)", id="a list"),
        pytest.param(
            "[" * 200_000, f"{RESUME}:1:65: nesting deeper than 64 (take out a level of brackets)", id="200,000 deep"
        ),
        pytest.param(
            '{"name": "\\ud83d\\ude00 \\\\ud800",\n "title": "[\\ud800"}',
            f"{RESUME}:2:11: a string holds half of a surrogate pair, which is not text (write the character itself)",
            id="half a pair",
        ),
        pytest.param(schedule("9" * 5000), f"{EVERY}: {TOO_LARGE}", id="5000 digits"),
        pytest.param(schedule("9007199254740993"), f"{EVERY}: {TOO_LARGE}", id="2^53+1"),
        pytest.param(schedule('"abc"'), f'{EVERY}: expected a whole number, got "abc"', id="every abc"),
        pytest.param(schedule("0"), f"{EVERY}: expected a number of at least 1, got 0 (write 1 or more)", id="every 0"),
        pytest.param(
            schedule("-1"), f"{EVERY}: expected a number of at least 1, got -1 (write 1 or more)", id="every -1"
        ),
        pytest.param(schedule("2.0"), f"{EVERY}: expected a whole number, got 2.0 (write 2)", id="every 2.0"),
        pytest.param(schedule("1.5"), f"{EVERY}: expected a whole number, got 1.5", id="every 1.5"),
        pytest.param(schedule("true"), f"{EVERY}: expected a whole number, got true", id="every true"),
        pytest.param(schedule("NaN"), f"{EVERY}: NaN is not JSON (write a number, or null)", id="every NaN"),
        pytest.param(
            '{\n "name": "beta",\n "permissions": {\n  "tools": [],\n  "tools": ["shell"]\n }\n}',
            f'{RESUME}:5:3 /permissions/tools: duplicate key "tools" (remove one of the two)',
            id="a duplicate key",
        ),
        pytest.param(
            json.dumps(resume("ada"), indent=1),
            f'{RESUME}:2:2 /name: the name must be the folder\'s name "beta", got "ada" '
            '(set "name": "beta" or rename the folder; `lemming agents rename` and `copy` change all that names it)',
            id="another's name",
        ),
        pytest.param(GOOD[:-2] + ",\n}", f"{A_COMMA} (remove the comma)", id="a comma at the end"),
        pytest.param("name: beta", f"{RESUME}:1:1: expecting value (start the file with {{)", id="YAML"),
        pytest.param(
            GOOD.replace("{", "{'x': 1,", 1),
            f'{RESUME}:1:2: expected a key in double quotes (write straight double quotes: ")',
            id="single quotes",
        ),
        pytest.param(
            '{"name": "beta",\n "title": "C:\\dir"}',
            f"{RESUME}:2:14: invalid \\escape (write two backslashes for one: \\\\)",
            id="a backslash",
        ),
        pytest.param(GOOD + "{}", f"{AFTER}: extra data (remove what follows the first value)", id="two objects"),
        pytest.param(
            '{"name": "beta",\n "instructions": ""}',
            f"{RESUME}:2:2 /instructions: expected at least 1 character, got 0",
            id="no instructions",
        ),
        pytest.param(
            '{"name": "beta", "instructions": "x",\n "clock": "yes"}',
            f'{RESUME}:2:2 /clock: expected true or false, got "yes" (write true)',
            id="yes",
        ),
        pytest.param(os.mkfifo, f"{RESUME}: not a regular file ({PUT_ONE})", id="a pipe"),
        pytest.param(Path.mkdir, f"{RESUME}: not a regular file ({PUT_ONE})", id="a folder"),
        pytest.param(a_device, f"{RESUME}: not a regular file ({PUT_ONE})", id="a device"),
        pytest.param(a_link_to("/etc/passwd"), f"{RESUME}: {A_LINK} ({PUT_ONE})", id="a link"),
        pytest.param(
            json.dumps(resume("beta", title="x" * 300_000)), f"{RESUME}: larger than 262144 bytes", id="large"
        ),
    ],
)
def test_a_bad_resume_takes_out_that_agent_only_and_says_where(org: Path, content: Content, message: str) -> None:
    assert run_with(org, RESUME, content) == {"beta": message}


@pytest.mark.parametrize("name", ["../../evil", "", "a/b", "CON", "x" * 300, "e\u0301te\u0301", "Beta", "be\nta"])
def test_a_resume_with_a_name_that_is_not_its_folders_is_refused(org: Path, name: str) -> None:
    reasons = run_with(org, RESUME, json.dumps(resume(name)))
    assert reasons["beta"].startswith(f"{RESUME}:1:2 /name: the name must be the folder's name")
    assert reasons["beta"].endswith(
        '(set "name": "beta" or rename the folder; `lemming agents rename` and `copy` change all that names it)'
    )
    assert sorted(path.name for path in (org / "agents").iterdir()) == ["ada", "beta", "zed"]


def test_of_a_resume_of_a_gigabyte_no_more_than_the_limit_is_read(org: Path) -> None:
    def make(path: Path) -> None:
        path.write_text("{")
        os.truncate(path, 1 << 30)

    tracemalloc.start()
    try:
        assert run_with(org, RESUME, make) == {"beta": f"{RESUME}: larger than 262144 bytes"}
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 32 << 20


def test_the_content_behind_a_link_is_not_echoed(org: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the words of a secret")
    run_with(org, RESUME, a_link_to(str(tmp_path / "secret")))
    (org / RESUME).unlink()
    assert b"the words" not in b"".join(tree(org, without=()).values())


def test_a_byte_order_mark_is_accepted_with_a_warning(org: Path) -> None:
    assert run_with(org, RESUME, b"\xef\xbb\xbf" + GOOD.encode()) == {}
    (warning,) = survey_agents(org).warnings
    assert str(warning) == f"{RESUME}:1:1: the file must be UTF-8 without a byte order mark; the mark is ignored"


@pytest.mark.parametrize("name", ["CON", "Beta", "e\u0301te\u0301", "x" * 100, "-beta", "a b", "be.ta"])
def test_a_folder_whose_name_is_no_name_is_said_to_be_none(org: Path, name: str) -> None:
    plain = json.dumps(resume(name))
    reason = f"agents/{name}: {name[:80]!r}: {NAME_RULE} (rename the folder)"
    assert run_with(org, f"agents/{name}/resume.json", plain) == {name: reason}


def test_a_folder_whose_name_is_not_text_is_reported_and_stops_nobody(org: Path) -> None:
    os.mkdir(os.fsencode(org / "agents") + b"/\xff\xfe")
    report = run_once(org)
    assert [turn.agent for turn in report.by_status("failed")] == ["??"]
    assert len(report.by_status("done")) == 2


def test_a_cycle_of_links_is_refused_and_not_followed(org: Path) -> None:
    (org / "agents/self").symlink_to("self")
    reasons = run_with(org, "agents/loop", a_link_to(".."))
    assert reasons == {
        "loop": "agents/loop: an agent must be a real folder, got a symbolic link (copy the folder here)"
    }


def test_a_resume_with_thousands_of_problems_names_the_first_ones_at_once(org: Path) -> None:
    plain = resume("beta", permissions={"read_outboxes": [1] * 30_000})
    plain |= {f"key{number}": 1 for number in range(3000)}
    reasons = run_with(org, RESUME, json.dumps(plain))
    assert "/permissions/read_outboxes/0: expected text, got 1" in reasons["beta"]
    assert len(survey_agents(org).broken["beta"].problems) == 40


def test_300_folders_of_which_half_are_broken_are_all_reported(org: Path) -> None:
    for number in range(300):
        content = resume(f"agent{number:03d}") if number % 2 else {"name": "?"}
        put(org / f"agents/agent{number:03d}/resume.json", json.dumps(content))
    report = run_once(org)
    assert (len(report.by_status("done")), len(report.by_status("failed"))) == (152, 150)


# --- the clock ---------------------------------------------------------------------------------


TO_2 = 'write {"current_tick": 2} into the file; the last journal is of tick 1'
NO_TICK = 'expected {"current_tick": N} with a whole number N'


@pytest.mark.parametrize(
    ("content", "why"),
    [
        pytest.param("", "cannot read the tick counter: unexpected end of JSON", id="empty"),
        pytest.param("forty", "cannot read the tick counter: expecting value", id="text"),
        pytest.param('{"current_tick": -1}', NO_TICK, id="negative"),
        pytest.param('{"current_tick": 2.0}', NO_TICK, id="a fraction"),
        pytest.param('{"current_tick": true}', NO_TICK, id="true"),
        pytest.param('{"current_tick": "2"}', NO_TICK, id="a word"),
        pytest.param("[2]", NO_TICK, id="a list"),
        pytest.param('{"current_tick": 1000000000000}', NO_TICK, id="thirteen digits"),
        pytest.param(
            '{"current_tick": 1180591620717411303424}',
            "cannot read the tick counter: number out of range: integers must fit in 53 bits",
            id="2^70",
        ),
        pytest.param(
            '{"current_tick": 2, "current_tick": 9}',
            'cannot read the tick counter: duplicate key "current_tick"',
            id="twice",
        ),
        pytest.param(b"\xff\xfe", "cannot read the tick counter: byte 0xff at offset 0 is not UTF-8", id="bytes"),
        pytest.param(os.mkfifo, "cannot read the tick counter: not a regular file", id="a pipe"),
        pytest.param(Path.mkdir, "cannot read the tick counter: not a regular file", id="a folder"),
        pytest.param(
            a_link_to("/etc/passwd"),
            "cannot read the tick counter: expected a regular file, got a symbolic link",
            id="a link",
        ),
    ],
)
def test_a_clock_that_cannot_be_read_stops_the_engine_and_is_left_as_it_is(
    org: Path, content: Content, why: str
) -> None:
    run_once(org)
    put(org / "tick.json", content)
    before = tree(org, without=(".lemming",))
    with pytest.raises(CorruptState) as caught:
        run_once(org)
    assert str(caught.value) == f"tick.json: {why} ({TO_2})"
    assert tree(org, without=(".lemming",)) == before


def interrupt(org: Path) -> None:
    """Let the engine die when it asks the first model."""

    def die(event: Event) -> None:
        if isinstance(event, ModelAsked):
            raise Crash

    with pytest.raises(Crash):
        run_once(org, notify=die)


def test_the_way_out_after_an_interrupted_tick_is_to_run_that_tick_again(org: Path) -> None:
    interrupt(org)
    (org / "tick.json").write_text("")
    with pytest.raises(CorruptState, match=r'write \{"current_tick": 1\} into the file'):
        run_once(org)


def test_a_clock_moved_past_an_interrupted_tick_is_refused(org: Path) -> None:
    interrupt(org)
    (org / "tick.json").write_text('{"current_tick": 2}')
    with pytest.raises(CorruptState) as caught:
        run_once(org)
    assert str(caught.value) == (
        "tick.json: tick 1 was interrupted in the turn of ada and is unfinished ("
        'write {"current_tick": 1} to finish it, or move logs/ticks/00000001.jsonl away to give it up)'
    )
    (org / "tick.json").write_text('{"current_tick": 1}')
    assert [run_once(org).tick for _ in range(2)] == [1, 2]


# --- settings ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("credits.json", '{"ada": {"max_credits"', f"config/credits.json:1:23: unexpected end of JSON ({UNCLOSED})"),
        (
            "credits.json",
            '{"ada": {"max_credits": "many"}}',
            'config/credits.json:1:10 /ada/max_credits: expected a number, got "many"',
        ),
        (
            "credits.json",
            '{"ada": 5}',
            'config/credits.json:1:2 /ada: expected an object, got a number (write {"max_credits":5})',
        ),
        ("credits.json", "[]", "config/credits.json:1:1: expected an object, got a list (start the file with {)"),
        (
            "models.json",
            '{"a": {"provider": 5}}',
            'config/models.json:1:8 /a/provider: expected text, got 5 (write "5")',
        ),
        ("models.json", '{"a": {"provider": true}}', "config/models.json:1:8 /a/provider: expected text, got true"),
        (
            "org.json",
            '{"durability": "sometimes"}',
            "config/org.json:1:2 /durability: expected 'turn', 'tick' or 'off', got \"sometimes\"",
        ),
        (
            "org.json",
            '{"plugins": ["no_such_module"]}',
            "config/org.json: plugin no_such_module cannot be imported: ModuleNotFoundError: "
            "No module named 'no_such_module' (put it on the Python path (PYTHONPATH=. for a file here), "
            "or remove it from `plugins`)",
        ),
    ],
)
def test_a_wrong_setting_stops_the_engine_before_anybody_is_asked(
    org: Path, file: str, content: str, message: str
) -> None:
    (org / "config" / file).write_text(content)
    with pytest.raises(ConfigError) as caught:
        run_once(org)
    assert str(caught.value) == message
    assert read_journal(org, 1) == []
    assert (org / "config" / file).read_text() == content


def test_all_wrong_settings_are_said_at_once(org: Path) -> None:
    (org / "config/org.json").write_text('{"max_attempts": 0, "inbox_limit": -1}')
    (org / "config/credits.json").write_text('{"ada": {"soft_cap": false}}')
    with pytest.raises(ConfigError) as caught:
        run_once(org)
    assert [problem.pointer for problem in caught.value.problems] == ["/inbox_limit", "/max_attempts", "/ada/soft_cap"]
