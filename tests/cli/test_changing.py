"""The commands that change files: init, send, agents new, memory, credits."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from terminal import Lemming

from lemming.commands.init import TEMPLATES, load_template
from lemming.kernel.agents import load_agent
from lemming.kernel.files import fs
from lemming.kernel.memory import load_memory
from lemming.kernel.org.config import load_config
from lemming.kernel.org.model_entries import LOCAL_MODEL
from lemming.libraries.model_catalogue import get_weights
from lemming.testing import make_org, resume, tree

HUMAN = resume("human", model={"key": "human"})
REPOSITORY = TEMPLATES.parent.parent


# --- init ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("template", ["newsroom", "empty"])
def test_a_new_org_is_in_order_and_its_clock_stands_at_1(tmp_path: Path, bare: Lemming, template: str) -> None:
    folder = tmp_path / "deep" / "news"
    ran = bare("init", str(folder), "--template", template)
    assert ran.status == 0
    assert sorted(ran.out.splitlines()) == sorted(str(folder / file) for file in tree(folder))
    checked = bare("-C", str(folder), "validate")
    assert (checked.status, checked.out) == (0, "")
    assert checked.err.startswith("no problems\n")
    assert (folder / "tick.json").read_text() == '{\n  "current_tick": 1\n}\n'
    assert bare("-C", str(folder), "plan").status == 0


def test_init_ends_with_what_to_type_next(tmp_path: Path, bare: Lemming) -> None:
    lines = bare("init", str(tmp_path / "news")).err.splitlines()
    assert lines[:2] == ["next:", f"  cd {tmp_path / 'news'}"]
    assert lines[2:4] == ["  lemming run-once", "  lemming inbox human"]
    assert "`lemming dash`" in lines[4]
    assert len(lines) == 5


def test_init_overwrites_nothing(tmp_path: Path, bare: Lemming) -> None:
    (tmp_path / "tick.json").write_text("mine")
    ran = bare("init", str(tmp_path))
    assert ran.status == 2
    assert "tick.json already present; nothing was written" in ran.err
    assert list(tmp_path.iterdir()) == [tmp_path / "tick.json"]


def test_the_repository_as_it_is_kept_is_the_newsroom() -> None:
    """What git holds, that is: whoever runs the organisation in this folder changes its files."""
    if not (REPOSITORY / ".git").exists():
        pytest.skip("not a clone")
    for file, content in load_template("newsroom").items():
        if file != ".gitignore":
            kept = subprocess.run(["git", "show", f":{file}"], cwd=REPOSITORY, capture_output=True, check=True)
            assert kept.stdout == content, file


def test_each_model_of_the_newsroom_is_one_line() -> None:
    lines = load_template("newsroom")["config/models.json"].decode().splitlines()
    keys = ["default", "full", "gpt", "gpt-4o-mini", "claude", "llama", "human"]
    assert [next(iter(json.loads("{" + line.strip().rstrip(",") + "}"))) for line in lines[1:-1]] == keys


# --- send ----------------------------------------------------------------------------------------


def test_a_message_is_an_entry_in_the_persons_outbox(base: Path, lemming: Lemming) -> None:
    make_org(base, HUMAN, resume("ada"))
    ran = lemming("send", "Hello.", "--to", "ada", "--kind", "request", "--tag", "a", "--tag", "b")
    assert ran.status == 0
    entry = json.loads((base / ran.out.strip()).read_text())
    assert entry["payload"] == {"text": "Hello.", "target": "ada"}
    assert (entry["agent"], entry["tick"], entry["kind"]) == ("human", 1, "request")
    assert entry["tags"] == ["a", "b"]
    assert ran.err == "to be read by ada in tick 1 (tick 1 is next)\n"
    assert "Hello." in lemming("inbox", "ada").out


def test_several_words_are_one_message(base: Path, lemming: Lemming) -> None:
    make_org(base, HUMAN, resume("ada"))
    assert lemming("send", "two", "words", "--json", "--to", "ada").objects[0]["payload"]["text"] == "two words"


def test_a_payload_is_merged_and_text_may_come_from_a_pipe(
    base: Path, lemming: Lemming, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_org(base, HUMAN)
    monkeypatch.setattr(sys, "stdin", io.StringIO("from a pipe\n"))
    ran = lemming("send", "-", "--payload", '{"page": 3}', "--json")
    assert ran.objects[0]["payload"] == {"text": "from a pipe", "page": 3}


def test_a_reader_who_cannot_read_it_is_a_warning(base: Path, lemming: Lemming) -> None:
    make_org(base, HUMAN, resume("ada"), resume("bob", permissions={"read_outboxes": ["ada"]}))
    ran = lemming("send", "Hello.", "--to", "bob")
    assert ran.status == 0
    assert 'warning: bob cannot read it; add "human" to read_outboxes in agents/bob/resume.json' in ran.err


def test_who_wakes_for_what_names_it_is_not_told_of_as_a_reader_of_anything_else(base: Path, lemming: Lemming) -> None:
    addressed = {"schedule": {"wake": "addressed"}}
    make_org(base, HUMAN, resume("ada", **addressed), resume("bob"))
    assert lemming("send", "Hello.").err == "to be read by bob in tick 1 (tick 1 is next)\n"
    assert lemming("send", "Hello.", "--to", "ada").err == "to be read by ada in tick 1 (tick 1 is next)\n"
    make_org(base / "other", HUMAN, resume("ada", **addressed))
    told = lemming("-C", str(base / "other"), "send", "Hello.").err
    assert told == "no agent is woken; ada sees it in its next turn\n"
    assert '"text": "Hello."' in lemming("-C", str(base / "other"), "prompt", "ada").out


def test_who_sees_what_wakes_nobody_is_told_and_is_shown_it_in_a_turn_for_something_else(
    base: Path, lemming: Lemming
) -> None:
    addressed = {"schedule": {"wake": "addressed"}}
    models = {"default": {"provider": "fake", "model": "echo"}, "plan": {"provider": "plan"}}
    ada, bob = (resume(name, **addressed) for name in ("ada", "bob"))
    make_org(base, HUMAN, ada, bob, resume("steps", model={"key": "plan"}), models=models)
    told = "no agent is woken; ada and bob see it in their next turn\n"  # steps follows a plan
    assert lemming("send", "Hello.").err == told
    lemming("send", "--to", "bob", "Now you.")
    shown = lemming("prompt", "bob").out
    assert shown.index("# New entries") < shown.index("Now you.") < shown.index("seen before")
    assert shown.index("seen before") < shown.index("Hello.")


def test_a_text_that_begins_with_an_agents_name_is_refused_without_to(base: Path, lemming: Lemming) -> None:
    make_org(base, HUMAN, resume("ada"))
    ran = lemming("send", "ada", "Do it")
    assert ran.status == 2
    assert "lemming send --to ada 'Do it'" in ran.err
    assert not [*base.glob("agents/human/outbox/*")]
    for words in (["ada hello"], ["ada"], ["--to", "ada", "ada", "hello"], ["human", "hello"]):
        assert lemming("send", *words).status == 0


@pytest.mark.parametrize("first", ["Planner", "planner:", "@planner", "plannr"])
def test_a_first_word_that_is_an_agents_name_in_another_spelling_is_refused(
    base: Path, lemming: Lemming, first: str
) -> None:
    make_org(base, HUMAN, resume("planner"))
    ran = lemming("send", first, "Do it")
    assert ran.status == 2
    assert "lemming send --to planner 'Do it'" in ran.err
    assert not (base / "agents/human/outbox").exists()


def test_who_will_read_a_message_is_told_with_the_tick(base: Path, lemming: Lemming) -> None:
    make_org(
        base,
        HUMAN,
        resume("hr", schedule={"run_every_n_ticks": 1000}),
        resume("ada", schedule={"run_every_n_ticks": 5}),
        resume("deaf", permissions={"read_outboxes": ["ada"]}),
        *(resume(f"n{number}", schedule={"run_every_n_ticks": 2000}) for number in range(5)),
    )
    told = "to be read by ada in tick 5, hr in tick 1000, n0 in tick 2000, n1 in tick 2000, n2 in tick 2000"
    assert lemming("send", "Good work.").err == f"{told} and 2 more (tick 1 is next)\n"
    assert lemming("send", "Good work.", "--to", "hr").err == "to be read by hr in tick 1000 (tick 1 is next)\n"
    refused = lemming("send", "Good work.", "--to", "deaf").err
    assert "deaf cannot read it" in refused
    assert "no agent is woken; ada, hr, n0, n1, n2 and 2 more see it in their next turn" in refused


def test_a_message_that_nobody_will_read_says_so(base: Path, lemming: Lemming) -> None:
    make_org(base, HUMAN, resume("ada", permissions={"read_outboxes": []}))
    assert lemming("send", "Hello?").err == "warning: no agent reads this outbox\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["Hello.", "--as", "ada"], "ada is not a person"),
        (["Hello.", "--as", "humn"], 'did you mean "human"?'),
        (["Hello.", "--to", "adda"], 'did you mean "ada"?'),
        ([], "the message is empty"),
        ([""], "the message is empty"),
        (["--payload", "{"], "--payload is not JSON: "),
        (["--payload", "[]"], "--payload must be a JSON object"),
        (["x" * 300_000], "put the content into a file"),
    ],
)
def test_what_cannot_be_sent_is_refused(base: Path, lemming: Lemming, words: list[str], said: str) -> None:
    make_org(base, HUMAN, resume("ada"))
    ran = lemming("send", *words)
    assert ran.status == 2
    assert said in ran.err
    assert not (base / "agents/human/outbox").exists()


# --- agents --------------------------------------------------------------------------------------


def test_a_new_agent_has_the_resume_that_was_asked_for(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    ran = lemming(
        "agents", "new", "sub-editor", "--read", "ada", "--read", "bob", "--tool", "file_read",
        "--model", "scripted", "--every", "3", "--offset", "1", "--instructions", "Shorten it.",
    )  # fmt: skip
    assert ran.status == 0
    agent = load_agent(base, "sub-editor")
    assert agent.title == "Sub Editor"
    assert agent.permissions.read_outboxes == ["ada", "bob"]
    assert agent.permissions.tools == ["file_read"]
    assert (agent.schedule.run_every_n_ticks, agent.schedule.phase_offset) == (3, 1)
    assert "sub-editor runs first in tick 2" in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ada"], 'there is an agent "ada" already'),
        (["Ada"], "a name has 1 to 63 characters"),
        (["../bob"], "a name has 1 to 63 characters"),
        (["all"], '"all" must not be an agent\'s name'),
        (["bob", "--model", "scriptd"], 'did you mean "scripted"?'),
        (["bob", "--tool", "file_raed"], 'did you mean "file_read"?'),
    ],
)
def test_an_agent_that_cannot_be_is_refused(base: Path, lemming: Lemming, words: list[str], said: str) -> None:
    make_org(base, resume("ada"))
    before = tree(base)
    ran = lemming("agents", "new", *words)
    assert ran.status == 2
    assert said in ran.err
    assert tree(base) == before


# --- memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "value"),
    [("plain words", "plain words"), ('{"pages": 3}', {"pages": 3}), ("3", 3), ('"3"', "3"), ("NaN", "NaN")],
)
def test_a_memory_is_json_where_it_reads_as_json_else_text(
    base: Path, lemming: Lemming, word: str, value: object
) -> None:
    make_org(base, resume("ada"))
    assert lemming("memory", "set", "ada", "goal", word).status == 0
    assert load_memory(base, "ada", "goal") == value
    assert json.loads(lemming("memory", "get", "ada", "goal").out) == value


def test_memories_are_listed_and_forgotten(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    lemming("memory", "set", "ada", "goal", "ship")
    assert lemming("memory", "list", "ada").out.splitlines()[1].split() == ["goal", "ship"]
    assert lemming("memory", "rm", "ada", "goal").status == 0
    ran = lemming("memory", "rm", "ada", "goal")
    assert ran.status == 2
    assert 'ada has no memory "goal"' in ran.err


def test_a_memory_that_is_not_there_gets_the_nearest_key(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    lemming("memory", "set", "ada", "goal", "ship")
    assert 'did you mean "goal"?' in lemming("memory", "get", "ada", "gaol").err


# --- credits -------------------------------------------------------------------------------------


def test_a_grant_adds_to_the_limit_and_leaves_the_rest_of_the_file(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada", credits={"max_credits": 10}), resume("bob"))
    kept = {"bob": {"max_credits": 5, "soft_cap": 4}, "ada": {"soft_cap": 8}}
    fs.write_atomic(base, "config/credits.json", json.dumps(kept).encode())
    ran = lemming("credits", "grant", "ada", "2.5")
    assert ran.status == 0
    assert "ada may spend 12.5 credits (before: 10); 12.5 left" in ran.err
    assert json.loads((base / "config/credits.json").read_text()) == {
        "bob": {"max_credits": 5, "soft_cap": 4},
        "ada": {"soft_cap": 8, "max_credits": 12.5},
    }


def test_a_grant_makes_the_file_if_need_be_and_lets_the_agent_run_again(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada", credits={"max_credits": 0}))
    assert lemming("run-once", "-q").status == 6
    assert lemming("credits", "grant", "ada", "1", "--json").objects[0]["left"] == 1
    assert load_config(base).allocations["ada"].max_credits == 1
    assert lemming("run-once", "-q").status == 0


def test_an_agent_without_credits_ends_a_run_and_a_question_with_six_also_beside_an_idle_one(
    base: Path, lemming: Lemming
) -> None:
    idle, human = resume("bob", schedule={"wake": "addressed"}), resume("human", model={"key": "human"})
    make_org(base, resume("ada", credits={"max_credits": 0}), idle, human, models={"human": {"provider": "human"}})
    assert lemming("run-once", "-q").status == 6
    assert lemming("ask", "ada", "How are you?").status == 6


def test_a_message_to_oneself_is_not_to_be_mended_by_reading_oneself(base: Path, lemming: Lemming) -> None:
    human = resume("human", model={"key": "human"})
    make_org(base, resume("ada"), human, models={"human": {"provider": "human"}})
    assert "human wrote it and reads only others" in lemming("send", "--to", "human", "hello").err


def test_a_grant_below_zero_takes_back(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada", credits={"max_credits": 10}))
    assert lemming("credits", "grant", "ada", "-4").status == 0
    assert load_config(base).allocations["ada"].max_credits == 6
    assert lemming("credits", "grant", "ada", "-7").status == 2


def test_a_grant_without_a_limit_is_refused(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    ran = lemming("credits", "grant", "ada", "1")
    assert ran.status == 2
    assert "ada has no limit" in ran.err


def test_credits_are_shown_with_what_is_left(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada", credits={"max_credits": 10, "soft_cap": 5}), HUMAN)
    lemming("run-once", "-q")
    rows = [line.split()[:5] for line in lemming("credits", "show").out.splitlines()]
    assert rows[1:] == [["ada", "1", "10", "9", "5"]]


# --- models --------------------------------------------------------------------------------------


def test_weights_that_are_here_are_not_pulled_again_if_only_missing_ones_are_wanted(
    base: Path, lemming: Lemming, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_org(base, resume("ada"))
    wanted = get_weights(LOCAL_MODEL)
    monkeypatch.setenv("LEMMING_MODELS_DIR", str(tmp_path))
    with (tmp_path / wanted.file).open("wb") as file:
        file.truncate(wanted.size_bytes)
    ran = lemming("models", "pull", "default", "--if-missing")
    assert (ran.status, ran.out, ran.err) == (0, "", "")


def test_weights_that_nobody_has_are_an_error_with_the_nearest_name(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    ran = lemming("models", "pull", "smollm2-135m-instrct")
    assert ran.status == 2
    assert f'did you mean "{LOCAL_MODEL}"?' in ran.err


def test_a_tool_for_a_model_that_is_too_small_for_tools_is_warned_about(base: Path, lemming: Lemming) -> None:
    make_org(base, HUMAN, models={"tiny": {"provider": "local", "model": LOCAL_MODEL}})
    ran = lemming("agents", "new", "ada", "--tool", "file_read", "--model", "tiny")
    assert f'model "tiny" is {LOCAL_MODEL}, which is too small to call tools: file_read' in ran.err
    assert "too small" not in lemming("agents", "new", "bob", "--model", "tiny").err


# --- say -----------------------------------------------------------------------------------------


def test_a_word_to_an_agent_is_an_urgent_message(lemming: Lemming, base: Path) -> None:
    make_org(base, resume("ada"), HUMAN, models={"human": {"provider": "human"}})
    ran = lemming("say", "ada", "Stop", "there.", "--json")
    assert ran.objects[0]["payload"] == {"text": "Stop there.", "target": "ada", "urgent": True}
    assert lemming("say", "ada", "Stop there.").err == "the next turn of ada shows it\n"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("adda", "x", 'there is no agent "adda"'),
        ("human", "x", "human takes no turns"),
        ("deaf", "x", "deaf may not read human"),
        ("ada", "", "the message is empty"),
    ],
)
def test_a_word_that_would_reach_nobody_is_not_written(
    lemming: Lemming, base: Path, name: str, text: str, message: str
) -> None:
    deaf = resume("deaf", permissions={"read_outboxes": []})
    make_org(base, resume("ada"), deaf, HUMAN, models={"human": {"provider": "human"}})
    ran = lemming("say", name, text)
    assert ran.status == 2
    assert message in ran.err
    assert not (base / "agents/human/outbox").exists()
