"""`lemming repair --retry`: a call whose outcome is unknown runs again when a person says so, once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from terminal import Ran
from typed import typed

from lemming.engine import run_once
from lemming.journal_tools.verify.state_root import load_state_root
from lemming.kernel.base.redaction.secrets import refresh
from lemming.kernel.files import fs
from lemming.kernel.journal.engine_events import Event, ModelAsked
from lemming.kernel.journal.journal_file import journal_ticks
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.tools import Tool, ToolRegistry, ToolResult
from lemming.operations.open_org import open_org
from lemming.testing import Crash, crash_at, journal_lines, make_org, resume, say, tree

Repair = Callable[..., Ran]


class Gong(Tool):
    """Something that cannot be taken back. It ends the process, or fails, as often as it was told to."""

    name = "gong"
    description = "Strikes the gong."

    def __init__(self, *, deaths: int) -> None:
        self.struck: list[int] = []
        self.deaths, self.failures = deaths, 0

    def execute(self, agent_name: str, base_path: Path, *, times: int) -> ToolResult:
        """Strike it."""
        self.struck.append(times)
        if self.deaths:
            self.deaths -= 1
            raise Crash
        if self.failures:
            raise OSError("it is cracked")
        return ToolResult(True, f"struck {times} times")


@pytest.fixture
def gong() -> Iterator[Gong]:
    """The gong; the process dies when it is first struck."""
    gong = Gong(deaths=1)
    ToolRegistry.register(gong)
    yield gong
    ToolRegistry.unregister("gong")


@pytest.fixture
def repair(base: Path, capsys: pytest.CaptureFixture[str]) -> Repair:
    """`lemming repair` on the organisation in `base`."""
    return lambda *words: typed(capsys, base, "repair", *words)


@pytest.fixture
def org(base: Path, gong: Gong) -> Path:
    """An organisation in which the outcome of ada's one call is unknown, as she has been told."""
    strikes = [{"tool": "gong", "args": {"times": 3}}]
    make_org(
        base,
        resume("ada", permissions={"read_outboxes": [], "tools": ["gong"]}, schedule={"wake": "changed"}),
        script=[{"agent": "ada", "tick": 1, "reply": say("now", tool_calls=strikes)}, {"reply": say("quiet")}],
    )
    with pytest.raises(Crash):
        run_once(base)
    run_once(base)
    run_once(base)
    return base


def prompt_of_next_turn(base: Path) -> str:
    report = run_once(base)
    started = next(r for r in journal_lines(base, report.tick) if r["type"] == "turn_started")
    return str(started["prompt"][-1]["content"])


def grant(base: Path, *tools: str) -> None:
    file = base / "agents/ada/resume.json"
    plain = json.loads(file.read_text())
    plain["permissions"]["tools"] = list(tools)
    file.write_text(json.dumps(plain))


def listed(repair: Repair) -> list[dict[str, Any]]:
    return [told["call"] for told in repair("--json").objects if told["call"]]


def test_without_yes_it_says_what_it_would_run_and_changes_nothing(org: Path, gong: Gong, repair: Repair) -> None:
    before = tree(org)
    ran = repair("--retry", "1/ada/0")
    assert ran.status == 1
    assert ran.err == 'would run gong {"times":3} again for ada; add --yes if repeating it is safe\n'
    assert gong.struck == [3]
    assert tree(org) == before


def test_the_call_runs_again_and_its_agent_reads_the_result(org: Path, gong: Gong, repair: Repair) -> None:
    ran = repair("--retry", "1/ada/0", "--yes")
    assert ran.status == 0
    assert ran.err.startswith('gong {"times":3} has run; ada will be told in its next prompt: struck 3 times')
    assert gong.struck == [3, 3]
    assert repair().err == "nothing to repair\n"
    prompt = prompt_of_next_turn(org)
    assert "A person has had this call of tick 1 run again.\\nstruck 3 times" in prompt
    assert read_state(org, "ada").results == ()
    assert repair().err == "nothing to repair\n"  # the journal remembers
    assert gong.struck == [3, 3]


def test_a_call_that_fails_again_is_settled_as_failed(org: Path, gong: Gong, repair: Repair) -> None:
    gong.failures = 1
    (told,) = repair("--retry", "1/ada/0", "--yes", "--json").objects
    assert (told["is_done"], told["success"]) == (True, False)
    assert "it is cracked" in told["output"]
    (result,) = read_state(org, "ada").results
    assert (result["success"], result["call"]) == (False, "1/ada/0")
    assert listed(repair) == []


def test_a_call_runs_again_only_where_somebody_agrees_to_what_runs(org: Path, gong: Gong, repair: Repair) -> None:
    fs.write_atomic(org, "config/org.json", b'{"tool_files": ["tools/*.py"]}')
    fs.write_atomic(org, "tools/mine.py", b"")
    assert repair("--retry", "1/ada/0", "--yes").status == 2
    assert gong.struck == [3]
    assert repair("--retry", "1/ada/0", "--yes", "--trust").status == 0
    assert gong.struck == [3, 3]


def test_a_secret_in_the_result_is_neither_kept_nor_shown(
    org: Path, gong: Gong, repair: Repair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GONG_TOKEN", "struck 3 times")
    refresh()
    ran = repair("--retry", "1/ada/0", "--yes")
    monkeypatch.undo()
    refresh()
    assert ran.err.endswith("[redacted GONG_TOKEN]\n")
    (result,) = read_state(org, "ada").results
    assert result["output"].endswith("[redacted GONG_TOKEN]")


def test_a_retry_that_is_cut_off_leaves_the_call_unknown_and_is_never_run_by_itself(
    org: Path, gong: Gong, repair: Repair
) -> None:
    gong.deaths = 1
    with pytest.raises(Crash):
        repair("--retry", "1/ada/0", "--yes")
    assert "the engine stopped while this ran, and so did the repair that repeated it" in repair().out
    assert "run again. INTERRUPTED: the engine stopped while this ran" in prompt_of_next_turn(org)
    run_once(org)
    assert [call["was_retried"] for call in listed(repair)] == [True]
    assert gong.struck == [3, 3]


@pytest.mark.parametrize("words", [["--retry", "1/ada/0", "--yes"], ["--mark", "failed", "1/ada/0"]])
@pytest.mark.parametrize("was_told", [True, False])
def test_a_retry_that_was_cut_off_can_be_settled(
    org: Path, gong: Gong, repair: Repair, words: list[str], was_told: bool
) -> None:
    gong.deaths = 1
    with pytest.raises(Crash):
        repair("--retry", "1/ada/0", "--yes")
    if was_told:
        run_once(org)
    assert repair(*words).status == 0
    assert [result["call"] for result in read_state(org, "ada").results] == ["1/ada/0"]
    run_once(org)
    assert listed(repair) == []


def test_wherever_a_retry_dies_the_call_has_run_at_most_once_and_is_listed_unless_its_end_is_known(
    org: Path, gong: Gong, repair: Repair
) -> None:
    number = 0
    while listed(repair):
        number, before = number + 1, len(gong.struck)
        try:
            with crash_at(number):
                repair("--retry", "1/ada/0", "--yes")
        except Crash:
            run_once(org)
        assert len(gong.struck) <= before + 1
    assert number > 5
    states = [
        record["state"] for tick in journal_ticks(org) for record in journal_lines(org, tick) if "state" in record
    ]
    words = [*read_state(org, "ada").results, *(result for state in states for result in state["results"])]
    assert [word.get("retry") for word in words].count("finished") == 1


def test_each_of_several_unknown_calls_is_settled_by_itself(base: Path, gong: Gong, repair: Repair) -> None:
    first, second = ({"tool": "gong", "args": {"times": times}} for times in (1, 2))
    make_org(
        base,
        resume("ada", permissions={"read_outboxes": [], "tools": ["gong"]}),
        script=[{"tick": 1, "reply": say("now", tool_calls=[first, second])}, {"reply": say("quiet")}],
    )
    gong.deaths = 2
    for _ in range(2):
        with pytest.raises(Crash):
            run_once(base)
    run_once(base)
    assert [call["id"] for call in listed(repair)] == ["1/ada/0", "1/ada/1"]
    repair("--retry", "1/ada/1", "--yes")
    assert gong.struck == [1, 2, 2]
    assert [call["id"] for call in listed(repair)] == ["1/ada/0"]
    repair("--mark", "done", "1/ada/0")
    assert listed(repair) == []
    told = [result.get("call") for result in read_state(base, "ada").results]
    assert told == [None, None, "1/ada/1", "1/ada/0"]


def test_a_tool_that_the_agent_may_not_call_any_more_is_not_run(org: Path, gong: Gong, repair: Repair) -> None:
    grant(org)
    ran = repair("--retry", "1/ada/0", "--yes")
    assert ran.status == 2
    assert "ada may not call gong any more" in ran.err
    assert "grant it in permissions.tools, or find out the outcome" in ran.err
    assert gong.struck == [3]
    assert [call["was_retried"] for call in listed(repair)] == [False]


def test_a_tool_that_is_gone_is_said_to_be(org: Path, repair: Repair) -> None:
    ToolRegistry.unregister("gong")
    ran = repair("--retry", "1/ada/0", "--yes")
    assert (ran.status, 'tool "gong" does not exist' in ran.err) == (2, True)


def test_a_tool_that_takes_other_arguments_by_now_is_not_run(org: Path, gong: Gong, repair: Repair) -> None:
    class Deaf(Gong):
        def execute(self, agent_name: str, base_path: Path, *, softly: bool) -> ToolResult:  # type: ignore[override]
            raise AssertionError

    ToolRegistry.register(Deaf(deaths=0))
    ran = repair("--retry", "1/ada/0", "--yes")
    assert (ran.status, "the call cannot be repeated" in ran.err) == (2, True)
    assert [call["was_retried"] for call in listed(repair)] == [False]


def test_a_retry_waits_until_the_tick_is_finished_and_the_engine_has_gone(
    org: Path, gong: Gong, repair: Repair
) -> None:
    with open_org(org):
        assert repair("--retry", "1/ada/0", "--yes").status == 4

    def die(event: Event) -> None:
        if isinstance(event, ModelAsked):
            raise Crash

    grant(org, "gong", "file_read")  # something has changed, so that she wakes
    with pytest.raises(Crash):
        run_once(org, notify=die)
    ran = repair("--retry", "1/ada/0", "--yes")
    assert (ran.status, "tick 3 is unfinished" in ran.err) == (2, True)
    assert gong.struck == [3]


@pytest.mark.parametrize(
    "words", [["--retry"], ["--retry", "--mark", "done", "1/ada/0"], ["--retry", "1/ada/9", "--yes"]]
)
def test_a_retry_needs_one_call_that_is_unknown(org: Path, gong: Gong, repair: Repair, words: list[str]) -> None:
    assert repair(*words).status == 2
    assert gong.struck == [3]


def test_what_a_person_settled_verifies_and_replays(
    org: Path, repair: Repair, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    repair("--retry", "1/ada/0", "--yes")
    assert typed(capsys, org, "verify").status == 0
    (turn,) = run_once(org).turns
    assert typed(capsys, org, "verify").status == 0
    assert typed(capsys, org, "replay").status == 0
    assert typed(capsys, org, "replay", "--into", str(tmp_path / "again")).status == 0
    assert load_state_root(tmp_path / "again") == load_state_root(org)
    assert "what a person had run again: call 1/ada/0" in typed(capsys, org, "why", turn.entries[0]["id"]).out
