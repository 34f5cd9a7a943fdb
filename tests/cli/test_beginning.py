"""`lemming init` on a terminal: three questions, and what is made of the answers."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_S
from terminal import Lemming

from lemming.capabilities.gates.gate_settings import get_gates
from lemming.commands.init import FIRST_AGENT, InitAnswers, apply_answers, ask_setup_questions, print_models
from lemming.import_export.apply_document import load_template
from lemming.kernel.agents import load_agent
from lemming.kernel.files import fs
from lemming.kernel.org.config import load_config
from lemming.kernel.org.model_entries import ModelEntry
from lemming.operations.model_detection import (
    AvailableModel,
    Machine,
    find_best_embedded,
    find_models_by_keys,
    recommend_model,
)

OWN = AvailableModel("openai", "gpt-6-luna", "OPENAI_API_KEY is set")
ROUTER = AvailableModel("openrouter", "", "OPENROUTER_API_KEY is set")


def answered(*answers: str, found: list[AvailableModel]) -> tuple[InitAnswers, list[str]]:
    told: list[str] = []
    left = iter(answers)

    def ask(question: str) -> str:
        told.append(question)
        return next(left)

    wish = ask_setup_questions(ask, told.append, found)
    assert [*left] == []
    return wish, told


def test_three_answers_say_what_is_made() -> None:
    assert answered("", "", "", found=[OWN])[0] == InitAnswers("desk", "", OWN, requires_approval=True)
    assert answered("2", "2", "no", found=[OWN])[0] == InitAnswers("research", "", None, requires_approval=False)
    wish, told = answered("0", "9", "x", "8", "", "Sum up the news.", "2", " ", "some/model", "n", found=[OWN, ROUTER])
    assert wish == InitAnswers("empty", "Sum up the news.", ROUTER._replace(model="some/model"))
    assert told.count("enter a number from 1 to 8") == 3


def test_who_has_no_model_is_told_so_and_gets_the_recording() -> None:
    wish, told = answered("1", "", found=[])
    assert (wish.template, wish.model) == ("desk", None)
    assert any("No model key is set in the environment" in line for line in told)


@pytest.mark.parametrize("template", ["desk", "review", "empty", "newsroom"])
def test_what_is_made_of_the_answers_is_in_order(template: str, tmp_path: Path, bare: Lemming) -> None:
    for file, content in load_template(template).items():
        fs.write_atomic(tmp_path, file, content)
    before = load_config(tmp_path)
    does = "Sum up the news." if template == "empty" else ""
    apply_answers(tmp_path, InitAnswers(template, does, OWN, requires_approval=True))
    config = load_config(tmp_path)
    assert (config.model("default").provider, config.model("default").model) == ("openai", "gpt-6-luna")
    if before.model("default").provider == "scripted":
        assert config.model("recorded") == before.model("default")
    assert get_gates(config.org)[0].then == "ask"
    if template == "review":
        assert get_gates(config.org) == get_gates(before.org)  # it has its own
    if does:
        first = load_agent(tmp_path, FIRST_AGENT)
        assert (first.instructions, first.permissions.read_outboxes) == ("Sum up the news.", ["human"])
    checked = bare("-C", str(tmp_path), "validate")
    assert (checked.status, checked.out) == (0, ""), checked


def test_keys_are_found_by_their_variables() -> None:
    found = find_models_by_keys({"OPENAI_API_KEY": "k", "GROQ_API_KEY": "k", "ANTHROPIC_API_KEY": " "})
    assert [(it.provider, it.model) for it in found] == [("openai", "gpt-6-luna"), ("groq", "")]


GIB = 1 << 30
QWEN = "qwen2.5-coder-0.5b-instruct"


@pytest.mark.parametrize(
    ("machine", "model"),
    [
        (Machine(8 * GIB, 2), QWEN),
        (Machine(2 * GIB, 64), QWEN),
        (Machine(8 * GIB, 4), "qwen2.5-coder-1.5b-instruct"),
        (Machine(None, 2), QWEN),
        (Machine(GIB, 8), None),
    ],
)
def test_the_embedded_model_fits_the_memory_and_the_processors(machine: Machine, model: str | None) -> None:
    found = find_best_embedded(machine)
    assert (found.model if found else None) == model


SERVED = AvailableModel("ollama", "llama3.2", "a server answers")
EMBEDDED = AvailableModel("local", QWEN, "runs on this machine")


@pytest.mark.parametrize(
    ("found", "best"),
    [
        ([OWN, SERVED, EMBEDDED], SERVED),
        ([OWN, EMBEDDED], OWN),
        ([ROUTER, EMBEDDED], ROUTER),
        ([EMBEDDED], EMBEDDED),
        ([], None),
    ],
)
def test_a_server_of_this_machine_comes_before_a_key_and_a_key_before_the_embedded_model(
    found: list[AvailableModel], best: AvailableModel | None
) -> None:
    assert recommend_model(found) == best


def test_what_was_found_is_told_with_the_command_that_takes_the_best_of_it() -> None:
    told: list[str] = []
    default = ModelEntry(provider="local", model="smollm2-135m-instruct")
    print_models(default, [OWN, SERVED, EMBEDDED], told.append)
    assert '"default": {"provider": "local", "model": "smollm2-135m-instruct"}' in told[0]
    assert told[1:] == [
        "found: openai gpt-6-luna (OPENAI_API_KEY is set)",
        "found: ollama llama3.2 (a server answers)",
        f"found: local {QWEN} (runs on this machine)",
        "better: `lemming models use ollama/llama3.2`",
    ]


def test_what_is_the_default_already_is_not_recommended() -> None:
    told: list[str] = []
    print_models(ModelEntry(provider="local", model=QWEN), [EMBEDDED], told.append)
    assert [line for line in told if line.startswith("better")] == []


def on_a_terminal(folder: Path, words: list[str], typed: bytes) -> tuple[int, bytes]:
    """Run `lemming` on a terminal of its own; return its status and all that it said."""
    ours, theirs = pty.openpty()
    kept = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_TOKEN"))}
    environment = {**kept, "GROQ_API_KEY": "k", "XDG_STATE_HOME": str(folder / "state")}
    command = [sys.executable, "-m", "lemming", *words]
    running = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True
    )
    os.close(theirs)
    os.write(ours, typed)
    said = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # the other end is closed: it has ended
            break
        if not piece:
            break
        said += piece
    os.close(ours)
    return running.wait(PATIENCE_S), said


def test_on_a_terminal_it_asks_and_makes_what_was_answered(tmp_path: Path) -> None:
    status, said = on_a_terminal(tmp_path, ["init", "mine"], b"8\nSort the mail.\n1\nllama-4\n\n")
    assert status == 0, said
    assert b"What is the purpose?" in said
    assert b"better:" not in said  # a model was chosen
    assert b'lemming ask assistant "..."' in said
    assert load_agent(tmp_path / "mine", FIRST_AGENT).instructions == "Sort the mail."
    assert load_config(tmp_path / "mine").model("default").model == "llama-4"


def test_on_a_terminal_it_says_which_models_were_found_and_which_is_better(tmp_path: Path) -> None:
    status, said = on_a_terminal(tmp_path, ["init", "news", "--template", "newsroom"], b"")
    assert status == 0, said
    assert b'"default": {"provider": "local", "model": "smollm2-135m-instruct"}' in said
    assert b"found: groq (GROQ_API_KEY is set)" in said
    assert b"better: `lemming models use " in said


def test_without_a_terminal_nothing_is_asked(tmp_path: Path, bare: Lemming) -> None:
    ran = bare("init", str(tmp_path / "news"))
    assert (ran.status, "found:" in ran.err) == (0, False)
    assert (tmp_path / "news/agents/editor/resume.json").exists()


def test_an_empty_one_says_what_its_model_cannot_do(tmp_path: Path, bare: Lemming) -> None:
    ran = bare("init", str(tmp_path / "mine"), "--template", "empty")
    assert "cannot sort, plan, check or call tools" in ran.err
    assert "lemming models use KEY" in ran.err


def test_the_folder_of_the_option_is_the_one_that_is_made(
    tmp_path: Path, bare: Lemming, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert bare("-C", "mine", "init", "--template", "empty").status == 0
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    ran = bare("-C", "mine", "init", "theirs", "--template", "empty")
    assert ran.status == 2
    assert "-C mine and theirs both name the folder" in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
