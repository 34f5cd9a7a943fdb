"""`lemming apply` and `lemming export org`: an organisation in one file, there and back."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from terminal import Lemming

from lemming.capabilities.gates.gate_settings import get_gates
from lemming.engine import run_once
from lemming.kernel.agents import load_agent
from lemming.kernel.files import fs
from lemming.kernel.org.config import load_config
from lemming.testing import FrozenClock, make_org, resume, say, tree

PAGE = (Path(__file__).parent.parent.parent / "docs/AGENT_GUIDE.md").read_text()
(KEEPER,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
TEMPLATES = ["newsroom", "empty", "desk", "research", "watch", "review", "game"]


@pytest.fixture
def idea(tmp_path: Path) -> Path:
    file = tmp_path / "idea.yaml"
    file.write_text(KEEPER)
    return file


def without_what_is_ours(base: Path) -> dict[str, bytes]:
    return {path: raw for path, raw in tree(base).items() if not path.startswith(".lemming")}


def test_the_keeper_of_changelogs_is_one_file_of_at_most_40_lines_and_works(
    idea: Path, tmp_path: Path, bare: Lemming
) -> None:
    assert len(KEEPER.splitlines()) <= 40
    base = tmp_path / "changelog"
    assert bare("apply", str(idea), str(base), "--yes").status == 0
    checked = bare("-C", str(base), "validate")
    assert (checked.status, checked.out) == (0, "")
    script: list[dict[str, Any]] = [
        {"agent": "collector", "step": 0, "calls": [{"tool": "commits", "args": {}}]},
        {"agent": "collector", "reply": say("a new flag", kind="report")},
        {"agent": "keeper", "reply": say("There is a new flag.")},
        {"agent": "publisher", "step": 0, "calls": [_write("There is a new flag.")]},
        {"agent": "publisher", "reply": say("it is written", kind="report")},
    ]
    (base / "shared/answers.jsonl").write_text("".join(json.dumps(line) + "\n" for line in script))
    free = {"usd_per_million_input_tokens": 0, "usd_per_million_output_tokens": 0}
    line = {"provider": "scripted", "tools": "native", "options": {"file": "shared/answers.jsonl"}, **free}
    models = {"default": line, "human": {"provider": "human"}}
    (base / "config/models.json").write_text(json.dumps(models))
    clock = FrozenClock(datetime(2026, 11, 23, 8, 59, tzinfo=UTC))
    assert not run_once(base, clock=clock).by_status("failed")
    clock.time = datetime(2026, 11, 23, 9, 1, tzinfo=UTC)  # a Monday
    for _ in range(3):
        run_once(base, clock=clock)
    assert not (base / "shared/CHANGELOG.md").exists()
    assert bare("-C", str(base), "approve", "--all", "--tool", "file_write", "--yes").status == 0
    run_once(base, clock=clock)
    assert (base / "shared/CHANGELOG.md").read_text() == "There is a new flag."


def _write(text: str) -> dict[str, Any]:
    return {"tool": "file_write", "args": {"path": "shared/CHANGELOG.md", "content": text}}


def test_the_same_twice_changes_nothing_and_what_comes_back_says_the_same(
    idea: Path, tmp_path: Path, bare: Lemming
) -> None:
    base, again = tmp_path / "one", tmp_path / "other"
    assert bare("apply", str(idea), str(base), "--yes").status == 0
    before = tree(base, without=())
    ran = bare("apply", str(idea), str(base))
    assert (ran.status, ran.out, "nothing to change" in ran.err) == (0, "", True)
    assert tree(base, without=()) == before
    idea.write_text(bare("-C", str(base), "export", "org").out)
    assert "nothing to change" in bare("apply", str(idea), str(base)).err
    assert bare("apply", str(idea), str(again), "--yes").status == 0
    assert without_what_is_ours(again) == without_what_is_ours(base)


@pytest.mark.sample(3)
@pytest.mark.parametrize("template", TEMPLATES)
def test_every_template_goes_through_one_file_and_stays_what_it_was(
    template: str, tmp_path: Path, bare: Lemming
) -> None:
    base, again, file = tmp_path / "one", tmp_path / "other", tmp_path / "org.yaml"
    assert bare("init", str(base), "--template", template, "--quiet").status == 0
    file.write_text(bare("-C", str(base), "export", "org").out)
    ran = bare("apply", str(file), str(base))
    assert (ran.status, "nothing to change" in ran.err) == (0, True), ran
    if template == "empty":
        assert file.read_text() == "{}\n"
        return
    assert bare("apply", str(file), str(again), "--yes").status == 0
    for name in [folder.name for folder in (base / "agents").iterdir()]:
        assert load_agent(again, name) == load_agent(base, name)
    first, second = load_config(base), load_config(again)
    assert {**second.models, **first.models} == {**second.models}
    assert get_gates(first.org) == get_gates(second.org)


def test_toml_and_json_say_the_same(tmp_path: Path, bare: Lemming) -> None:
    said = {"agents": {"ada": {"does": "Sum up.", "read": ["human"], "budget": 5}}}
    (tmp_path / "a.json").write_text(json.dumps(said))
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(said))
    (tmp_path / "a.toml").write_text('[agents.ada]\ndoes = "Sum up."\nread = ["human"]\nbudget = 5\n')
    made = []
    for kind in ("json", "yaml", "toml"):
        assert bare("apply", str(tmp_path / f"a.{kind}"), str(tmp_path / kind)).status == 0
        made.append(without_what_is_ours(tmp_path / kind))
    assert made[0] == made[1] == made[2]


def test_who_is_asked_and_who_asks_read_each_other_and_who_is_asked_wakes_for_it(
    tmp_path: Path, base: Path, lemming: Lemming
) -> None:
    make_org(
        base, resume("old", permissions={"read_outboxes": []}), resume("human", model={"key": "human"}), models=HUMAN
    )
    file = tmp_path / "team.yaml"
    file.write_text(
        "agents:\n"
        "  lead: {does: Answer., ask: [scout, old], read: human, model: scripted}\n"
        "  scout: {does: Look., model: scripted, approve: [send, file_write], steps: 3, strategy: react}\n"
    )
    ran = lemming("apply", str(file), "--yes")
    assert ran.status == 0, ran
    lead, scout, old = (load_agent(base, name) for name in ("lead", "scout", "old"))
    assert lead.permissions.read_outboxes == ["human", "scout", "old"]
    assert scout.permissions.read_outboxes == ["lead", "human"]
    assert "lead" in old.permissions.read_outboxes
    assert (scout.schedule.wake, scout.turn.max_steps, scout.turn.strategy) == ("addressed", 3, "react")
    assert [gate.file_value for gate in get_gates(scout)] == [
        {"at": "call", "then": "ask", "class": ["send"]},
        {"at": "call", "then": "ask", "tool": ["file_write"]},
    ]
    assert lemming("validate").status == 0
    assert "nothing to change" in lemming("apply", str(file)).err


HUMAN = {"human": {"provider": "human"}}


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("agents: {ada: {doez: x}}", 'agents.ada: unknown key "doez"'),
        ("agents: {ada: {doez: x}}", 'did you mean "does"?'),
        ("agents: {ada: {does: x, read: huma}}", 'did you mean "human"?'),
        ("agents: {ada: {does: x, ask: nobody}}", 'there is no agent "nobody"'),
        ("agents: {Ada: x}", '"Ada" must be a name'),
        ("agents: {all: x}", '"all" must not be an agent\'s name'),
        ("agents: {ada: 5}", "an agent must be a text or an object"),
        ("agents: {ada: {does: x, cron: 61 * * * *}}", '/schedule/cron: "61" is not a valid minute'),
        ("agents: {ada: {does: x, budget: much}}", 'a budget must be credits, dollars or tokens, got "much"'),
        ("agents: {ada: {does: x, steps: 999}}", "/turn/max_steps"),
        ("agent: {ada: x}", 'did you mean "agents"?'),
        ("agents: [ada]", '"agents" must be an object'),
        ("files: {../x: y}", "files.../x: not a file of an organisation"),
        ("files: {shared/../../x: y}", "not a file of an organisation"),
        ("files: {tick.json: y}", "not a file of an organisation"),
        ("files: {agents/ada/outbox/1.json: y}", "not a file of an organisation"),
        ("files: {config/org.json: {}}", "not a file of an organisation"),
        ("files: {shared/a.txt: [1]}", "a file must be a text"),
        ("agents: {ada: &x {does: y}, bob: *x}", "aliases"),
        ("- ada", "none of the expected keys"),
        ("a: b: c", "idea.yaml:1: cannot be read"),
    ],
)
def test_what_is_wrong_is_told_with_its_place_and_nothing_is_written(
    said: str, told: str, tmp_path: Path, bare: Lemming
) -> None:
    (tmp_path / "idea.yaml").write_text(said)
    ran = bare("apply", str(tmp_path / "idea.yaml"), str(tmp_path / "org"), "--yes")
    assert ran.status in (2, 3), ran
    assert told in ran.err
    assert not (tmp_path / "org").exists()


def test_what_cannot_run_so_says_so_and_names_what_to_do_in_place_of_running(tmp_path: Path, bare: Lemming) -> None:
    idea, base = tmp_path / "idea.yaml", tmp_path / "org"
    idea.write_text("agents:\n  ada:\n    instructions: x\n    approve: [shel]\n")
    ran = bare("apply", str(idea), str(base))
    assert ran.status == 3
    assert 'tool "shel" does not exist' in ran.err
    assert f"nothing was written; next: fix {idea}, then lemming apply {idea} {base}" in ran.err
    assert "run-once" not in ran.err
    assert not base.exists()
    idea.write_text(idea.read_text().replace("shel", "shell"))
    ran = bare("apply", str(idea), str(base))
    assert ran.status == 0
    assert "run-once" in ran.err


def test_what_is_there_is_changed_and_code_is_taken_only_when_agreed(idea: Path, tmp_path: Path, bare: Lemming) -> None:
    base = tmp_path / "changelog"
    ran = bare("apply", str(idea), str(base))
    assert "runs the Python code in tools/commits.py" in ran.err
    assert "the file contains code; nothing was written" in ran.err
    assert f"lemming apply {idea} {base} --yes" in ran.err
    assert not base.exists()
    assert bare("apply", str(idea), str(base), "--dry-run").status == 0
    assert not base.exists()
    assert bare("apply", str(idea), str(base), "--yes").status == 0
    before = tree(base, without=())
    (tmp_path / "small.yaml").write_text("agents: {keeper: {does: Write verse., read: collector}}")
    ran = bare("apply", str(tmp_path / "small.yaml"), str(base))
    assert ran.out == "changed  agents/keeper/resume.json\n"
    assert "1 file would change; nothing was written" in ran.err
    assert tree(base, without=()) == before
    assert bare("apply", str(tmp_path / "small.yaml"), str(base), "--yes").status == 0
    assert load_agent(base, "keeper").instructions == "Write verse."
    assert load_agent(base, "publisher").instructions.startswith("Write what the keeper sends")


def test_a_model_that_cannot_answer_yet_is_told_where_one_reads_what_is_next(
    idea: Path, tmp_path: Path, bare: Lemming, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    ran = bare("apply", str(idea), str(tmp_path / "org"), "--yes")
    assert 'the model "default" is not ready: OPENAI_API_KEY is not set: export OPENAI_API_KEY=...' in ran.err


def test_what_a_name_costs_is_told(tmp_path: Path, bare: Lemming) -> None:
    (tmp_path / "a.yaml").write_text(
        "agents: {publisher: {does: Publish., read: writer}, writer: {does: Write., read: human}}"
    )
    ran = bare("apply", str(tmp_path / "a.yaml"), str(tmp_path / "org"))
    assert "publisher comes before writer in a tick, by its name, and reads its entries in the next tick" in ran.err
    (tmp_path / "b.yaml").write_text(
        "agents: {zeno: {does: Publish., read: writer}, writer: {does: Write., read: human}}"
    )
    assert "by its name" not in bare("apply", str(tmp_path / "b.yaml"), str(tmp_path / "other")).err


def test_an_export_leaves_out_what_is_no_text_and_what_was_said_and_writes_over_nothing(
    base: Path, tmp_path: Path, lemming: Lemming
) -> None:
    make_org(base, resume("ada"))
    run_once(base)
    fs.write_atomic(base, "shared/picture.png", b"\xff\x00")
    fs.write_atomic(base, "shared/long.txt", b"x" * 70_000)
    fs.write_atomic(base, "shared/style.txt", "Größe\n".encode())
    models = json.loads((base / "config/models.json").read_text())
    models["drop"] = {"provider": "folder", "options": {"path": "./shared/drop/"}}
    fs.write_atomic(base, "config/models.json", json.dumps(models).encode())
    for path in ("drop/answers/a.md", "drop/done/a.txt", "drop/failed/b.txt", "drop/c.txt", "done/d.txt"):
        fs.write_atomic(base, f"shared/{path}", b"text\n")
    ran = lemming("export", "org")
    assert "left out, no text or too long: shared/picture.png" in ran.err
    assert "shared/long.txt" in ran.err
    document = yaml.safe_load(ran.out)
    assert document["files"]["shared/style.txt"] == "Größe\n"
    assert not any("outbox" in path or "logs" in path for path in document["files"])
    assert {path for path in document["files"] if "/d" in path} == {"shared/done/d.txt", "shared/drop/c.txt"}
    there = tmp_path / "there.yaml"
    there.write_text("mine")
    assert lemming("export", "org", "--output", str(there)).status == 2
    assert there.read_text() == "mine"
    assert lemming("export", "org", "--output", str(tmp_path / "new.yaml")).status == 0
    assert (tmp_path / "new.yaml").read_text().startswith("agents:")


def test_an_agent_that_is_a_plan_brings_what_belongs_to_it(tmp_path: Path, bare: Lemming) -> None:
    plan = {"steps": [{"name": "a", "ask": "ada", "task": "{{start}}"}, {"name": "b", "tool": "file_list"}]}
    idea, base = tmp_path / "idea.json", tmp_path / "org"
    idea.write_text(json.dumps({"agents": {"desk": {"plan": plan}, "ada": "You answer."}}))
    assert bare("apply", str(idea), str(base), "--yes").status == 0
    desk, ada = load_agent(base, "desk"), load_agent(base, "ada")
    assert (desk.model.key, desk.schedule.wake) == ("plan", "addressed")
    assert (desk.permissions.read_outboxes, desk.permissions.tools) == (["human", "ada"], ["file_list"])
    assert (ada.permissions.read_outboxes, ada.schedule.wake) == (["desk"], "addressed")
    assert json.loads((base / "agents/desk/plan.json").read_text()) == plan
    assert bare("-C", str(base), "validate").status == 0
    before = without_what_is_ours(base)
    assert bare("-C", str(base), "apply", str(idea)).status == 0
    assert without_what_is_ours(base) == before
    idea.write_text(json.dumps({"agents": {"desk": {"plan": "first"}}}))
    refused = bare("apply", str(idea), str(tmp_path / "other"), "--yes")
    assert "agents.desk.plan" in refused.err


@pytest.mark.parametrize(
    ("said", "place"),
    [
        ("agents:\n  ada:\n    instruction: x\n", "idea.yaml:3: agents.ada: "),
        ("agents:\n  ada:\n    does: x\n    read: huma\n", "idea.yaml:2: agents.ada: "),
        ("models: {}\nagents:\n  ada: 5\n", "idea.yaml:3: agents.ada: "),
        ("agents:\n  ada: x\nfiles:\n  ../x: y\n", "idea.yaml:4: files.../x: "),
    ],
)
def test_what_is_wrong_is_told_with_its_line(said: str, place: str, tmp_path: Path, bare: Lemming) -> None:
    (tmp_path / "idea.yaml").write_text(said)
    ran = bare("apply", str(tmp_path / "idea.yaml"), str(tmp_path / "org"), "--yes")
    assert place in ran.err


def test_what_is_wrong_in_json_is_told_with_its_line(tmp_path: Path, bare: Lemming) -> None:
    (tmp_path / "idea.json").write_text('{"agents": {\n  "ada": {\n    "instruction": "x"}}}')
    ran = bare("apply", str(tmp_path / "idea.json"), str(tmp_path / "org"), "--yes")
    assert "idea.json:3: agents.ada: " in ran.err
    assert 'write "does": what the agent is to do' in ran.err
