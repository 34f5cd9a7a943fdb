"""However long the way is on which a stranger's text goes through an organisation, it stays a stranger's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from planned import step, write_plan
from tainted_corpus import tainted
from test_files import call, word, worker
from tracked import MODELS, newest, owner, post, started, tick, tracked, write

from lemming.cli import run as lemming
from lemming.engine import run_once
from lemming.git_history.history_reader import GitHistory
from lemming.journal_tools.fork import fork
from lemming.journal_tools.replay.tick_replay import list_replayable_ticks, replay_into, replay_ticks
from lemming.journal_tools.verify.file_verification import verify_org
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.tick_counter import load_tick
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.operations.backup_archive import restore_backup
from lemming.operations.backup_writer import create_backup
from lemming.testing import FrozenClock, make_org, resume, say, tree

TICKS = 32
SILENT: dict[str, Any] = {"outbox_entries": []}


def run(base: Path, until: int) -> None:
    while load_tick(base) <= until:
        tick(base)


def keeper(base: Path, **settings: Any) -> Path:
    """Make an organisation in which ada keeps in tick 1 what a stranger says, and a file of it."""
    keeps = call("file_write", path="shared/x.txt", content="obey")
    keeps["memory_updates"] = [{"key": "note", "value": "obey"}]
    script = [{"agent": "ada", "tick": 1, "reply": keeps}, {"reply": SILENT}]
    tracked(base, worker("ada", ["post"]), script=script, retention_ticks=2, **settings)
    write(base, "post", "keep this")
    return base


def test_through_a_memory_long_after_the_stranger_is_forgotten(base: Path) -> None:
    keeper(base)
    run(base, TICKS)
    assert not list((base / "agents/post/outbox").iterdir())
    assert tick(base)["ada"].trust["from"] == [{"is": "outside", "of": "agents/ada/memory/note.json"}]


def test_through_agents_that_tell_each_other(base: Path) -> None:
    ada = resume("ada", permissions={"read_outboxes": ["post", "ben"], "tools": []})
    ben = resume("ben", permissions={"read_outboxes": ["ada"], "tools": []})
    tracked(base, ada, ben, resume("cyd", permissions={"read_outboxes": []}), retention_ticks=2)
    write(base, "post", "tell everybody")
    run(base, TICKS)
    turns = tick(base)
    assert (turns["ada"].trust["is"], turns["ben"].trust["is"], turns["cyd"].trust["is"]) == (
        "outside", "outside", "agent"
    )  # fmt: skip


def test_through_a_shared_file_read_long_after(base: Path) -> None:
    keeper(base)
    run(base, TICKS)
    late = call("file_read", path="shared/x.txt")
    script = [{"agent": "ben", "reply": late}, {"reply": SILENT}]
    text = "".join(json.dumps(line) + "\n" for line in script)
    (base / "config/answers.jsonl").write_text(text)
    (base / "agents/ben").mkdir()
    (base / "agents/ben/resume.json").write_bytes(dump_pretty(worker("ben")))
    assert tick(base)["ben"].trust["from"] == [{"is": "outside", "of": "shared/x.txt"}]


def test_through_a_summary_of_a_conversation(base: Path) -> None:
    sums = {"contains": "Write the new summary", "reply": "They talked of the harvest."}
    ada = resume("ada", memory={"strategy": "summary", "max_tokens": 300}, schedule={"wake": "addressed"})
    tracked(base, ada, script=[sums, {"reply": say("noted", kind="response")}])
    for number in range(TICKS):
        text = f"{number}: about the harvest of apples and what became of it " * 3
        send_request(base, "post", text)
        tick(base)
    kept = {file.name: json.loads(file.read_bytes()) for file in (base / "agents/ada/memory").iterdir()}
    assert [record.get("trust") for record in kept.values()] == ["outside"] * len(kept) != []
    assert tick(base)["ada"].status == "skipped"


def send_request(base: Path, author: str, text: str) -> None:
    from lemming.libraries.outbox_files import write_person_entry

    payload = {"text": text, "target": "ada", "conversation": "talk"}
    write_person_entry(base, author, tick=load_tick(base), kind="request", payload=payload, tags=[], created_at="")


def test_through_a_plan_and_those_it_asks(base: Path) -> None:
    may = {"read_outboxes": ["*"], "tools": []}
    desk = resume("desk", model={"key": "plan"}, permissions=may)
    agents = desk, resume("ada"), resume("ben"), owner(), post()
    script = [{"reply": say("done", kind="response")}]
    make_org(base, *agents, script=script, models=MODELS, org={"trust": {}})
    write_plan(base, step("first", "ada"), step("then", "ben"))
    send_to_desk(base)
    trusted = {}
    for _ in range(8):
        for turn in tick(base).values():
            if turn.request:
                trusted[turn.agent] = turn.trust["is"]
    assert trusted == {"desk": "outside", "ada": "outside", "ben": "outside"}
    (kept,) = (base / "agents/desk/memory").glob("run-*.json")
    assert json.loads(kept.read_bytes())["trust"] == "outside"
    assert newest(base, "desk").tags == ["trust:outside"]


def send_to_desk(base: Path) -> None:
    from lemming.libraries.outbox_files import write_person_entry

    write_person_entry(
        base, "post", tick=1, kind="request", payload={"text": "do it", "target": "desk"}, tags=[], created_at=""
    )


def test_through_a_job_that_an_agent_was_told_to_keep(base: Path) -> None:
    job = call("keep_job", name="each", cron="0 * * * *", text="obey")
    ada = resume("ada", permissions={"read_outboxes": ["post", "calendar"], "tools": ["keep_job"]})
    calendar = resume("calendar", model={"key": "clock"}, permissions={"read_outboxes": ["ada"]})
    script = [{"agent": "ada", "tick": 1, "reply": job}, {"reply": SILENT}]
    org = {"trust": {}, "timezone": "UTC"}
    make_org(base, ada, calendar, owner(), post(), script=script, models=MODELS, org=org)
    write(base, "post", "each hour")
    clock, seen = FrozenClock(), set()
    for _ in range(4):
        turns = run_once(base, clock=clock).turns
        seen |= {turn.trust["is"] for turn in turns if turn.agent == "calendar" and turn.trust}
        clock.advance(7200)
    assert seen == {"outside"}
    assert "trust:outside" in newest(base, "calendar").tags


@pytest.mark.long
def test_through_a_fork_and_a_rewind(base: Path, tmp_path: Path) -> None:
    keeper(base, history="git")
    run(base, TICKS // 2)
    history, folder = GitHistory(base), tmp_path / "fork"
    fork(history, history.resolve_state(str(TICKS // 2)), folder, [])
    run(folder, TICKS)
    assert tick(folder)["ada"].trust["is"] == "outside"
    assert word(folder, "shared/x.txt") == "outside"
    assert lemming(["-C", str(base), "rewind", "--to", "3", "--yes"]) == 0
    assert word(base, "shared/x.txt") == "outside"


def test_through_a_backup(base: Path, tmp_path: Path) -> None:
    keeper(base)
    run(base, 3)
    file = tmp_path / "org.tar.gz"
    create_backup(Organisation(base), file, wait_s=5)
    restore_backup(file, tmp_path / "again")
    assert tree(tmp_path / "again") == tree(base)
    assert word(tmp_path / "again", "shared/x.txt") == "outside"


def test_through_another_name_of_the_agent(base: Path) -> None:
    keeper(base)
    own = call("file_write", path="own.json", content="obey")
    (base / "config/answers.jsonl").write_text(json.dumps({"agent": "ada", "reply": own}) + "\n")
    tick(base)
    assert lemming(["-C", str(base), "agents", "rename", "ada", "lovelace"]) == 0
    mark = json.loads((base / "trust/agents/lovelace/workspace/own.json.json").read_bytes())
    assert (mark["file"], mark["trust"]) == ("agents/lovelace/workspace/own.json", "outside")
    assert not (base / "trust/agents/ada").exists()


def test_a_new_agent_that_a_stranger_had_made_is_no_further_trusted(base: Path) -> None:
    new = call("create_agent", name="eva", title="Eva", instructions="Obey.", model_key="scripted")
    hr = resume("hr", permissions={"read_outboxes": ["post"], "tools": ["create_agent"]})
    tracked(base, hr, script=[{"agent": "hr", "tick": 1, "reply": new}, {"reply": SILENT}])
    write(base, "post", "hire eva")
    tick(base)
    assert tick(base)["eva"].trust["from"] == [{"is": "outside", "of": "agents/eva/resume.json"}]


def test_results_that_wait_for_the_next_turn(base: Path) -> None:
    reads = resume("ada", permissions={"read_outboxes": [], "tools": ["http_get"]})
    asks = {"tick": 1, "reply": call("http_get", url="http://127.0.0.1:9/x")}
    hosts = {"hosts": ["127.0.0.1:9"], "private_hosts": ["127.0.0.1:9"]}
    tracked(base, reads, script=[asks, {"reply": SILENT}], http=hosts)
    first = tick(base)["ada"]
    assert first.trust == {"is": "outside", "from": [{"is": "outside", "of": "what http_get gives"}]}
    assert [result["trust"] for result in read_state(base, "ada").results] == ["outside"]
    assert started(base, 1, "ada")["given"]["trust"]["is"] == "agent"
    assert tick(base)["ada"].trust["from"] == [{"is": "outside", "of": "what http_get gave before"}]


def test_what_was_written_before_a_call_that_reaches_outside_bears_it_too(base: Path) -> None:
    calls = call("file_write", path="a.txt", content="obey")
    calls["tool_calls"].append({"tool": "shell", "args": {"command": "true"}})
    tracked(base, worker("ada", ["post"]), script=[{"reply": calls}], shell={"sandbox": "none"})
    write(base, "post", "write")
    turn = tick(base)["ada"]
    assert "trust/agents/ada/workspace/a.txt.json" in turn.written_ahead
    assert word(base, "agents/ada/workspace/a.txt") == "outside"


def test_a_turn_that_fails_after_a_command_leaves_what_it_wrote_marked(base: Path) -> None:
    calls = call("shell", command="echo obey > a.txt")
    script = [{"agent": "ada", "step": 0, "reply": calls}, {"reply": "not the contract"}]
    ada = worker("ada", ["post"], turn={"max_steps": 2, "repairs": 0})
    tracked(base, ada, script=script, shell={"sandbox": "none"})
    write(base, "post", "do it")
    turn = tick(base)["ada"]
    assert turn.status == "failed"
    assert json.loads((base / "trust/agents/ada/workspace/.all.json").read_bytes())["trust"] == "outside"


@pytest.mark.sample(3)
@pytest.mark.parametrize("durability", ["turn", "tick", "off"])
def test_replay_and_verify_agree_with_what_was_tracked(base: Path, tmp_path: Path, durability: str) -> None:
    tainted(base, {"durability": durability})
    run(base, 4)
    (reminder,) = (it for it in read_outbox_entries(base, "ada") if "reminder" in it.tags)
    assert reminder.tags == ["reminder", "trust:outside"]
    assert [each.tick for each in replay_ticks(base, list_replayable_ticks(base, None))] == [1, 2, 3, 4]
    again = tmp_path / "again"
    list(replay_into(base, again, list_replayable_ticks(base, None)))
    assert tree(again) == tree(base)
    assert verify_org(base).errors == []
    mark = base / "trust/shared/news.txt.json"
    mark.write_bytes(mark.read_bytes().replace(b'"known"', b'"owner"'))
    assert [error.file for error in verify_org(base).errors] == ["trust/shared/news.txt.json"]


def test_no_tool_reaches_the_marks(base: Path) -> None:
    access = {"allow_read": [str(base)], "allow_write": [str(base)]}
    ada = resume("ada", permissions={"read_outboxes": ["post"], "tools": ["file_write"], "file_access": access})
    clears = call("file_write", path=f"{base}/trust/shared/x.txt.json", content="{}")
    tracked(base, ada, script=[{"reply": clears}])
    (used,) = tick(base)["ada"].tools
    assert used["outcome"] == "refused"
    assert not (base / "trust").exists()


def test_what_a_turn_asked_for_is_its_text_in_the_next_one_too(base: Path) -> None:
    asks = {"tick": 1, "reply": call("file_write", path="a.txt", content="obey")}
    tracked(base, worker("ada", ["post"]), script=[asks, {"reply": SILENT}], retention_ticks=1)
    write(base, "post", "write")
    tick(base)
    (kept,) = read_state(base, "ada").results
    assert (kept["tool"], kept["trust"]) == ("file_write", "outside")


def test_what_a_folder_channel_took_in_is_outside_wherever_it_lies(base: Path) -> None:
    drop = {"post": {"provider": "folder", "options": {"path": "shared/drop"}}, "human": {"provider": "human"}}
    reads = call("file_read", path="shared/drop/done/x.txt")
    script = [{"tick": 1, "reply": reads}, {"tick": 3, "reply": call("file_list", path="shared")}]
    make_org(base, worker("ada"), post(), script=[*script, {"reply": SILENT}], models=drop, org={"trust": {}})
    (base / "shared/drop/done").mkdir(parents=True)
    (base / "shared/drop/done/x.txt").write_text("obey")
    assert tick(base)["ada"].trust["from"] == [{"is": "outside", "of": "shared/drop/done/x.txt"}]
    assert tick(base)["ada"].trust["is"] == "outside"
    assert tick(base)["ada"].trust["from"] == [{"is": "outside", "of": "shared/drop"}]
