"""`lemming init` on a terminal: three questions, and what is made of the answers."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from patience import PATIENCE_S
from terminal import Lemming

from lemming.capabilities.gates.keys import gates_in
from lemming.commands.init import FIRST, Beginning, ask_what_for, make_so
from lemming.exchange.template import template_files
from lemming.kernel.agents import load_agent
from lemming.kernel.files import fs
from lemming.kernel.org.config import load_config
from lemming.service.models_here import ModelHere, models_here, names_at

OWN = ModelHere("openai", "gpt-6-luna", "OPENAI_API_KEY is set")
ROUTER = ModelHere("openrouter", "", "OPENROUTER_API_KEY is set")


def answered(*answers: str, found: list[ModelHere]) -> tuple[Beginning, list[str]]:
    told: list[str] = []
    left = iter(answers)

    def ask(question: str) -> str:
        told.append(question)
        return next(left)

    wish = ask_what_for(ask, told.append, found)
    assert [*left] == []
    return wish, told


def test_three_answers_say_what_is_made() -> None:
    assert answered("", "", "", found=[OWN])[0] == Beginning("desk", "", OWN, asks_first=True)
    assert answered("2", "2", "no", found=[OWN])[0] == Beginning("research", "", None, asks_first=False)
    wish, told = answered(
        "0", "8", "x", "7", "", "Sum up the news.", "2", " ", "some/model", "n", found=[OWN, ROUTER]
    )
    assert wish == Beginning("empty", "Sum up the news.", ROUTER._replace(model="some/model"))
    assert told.count("a number from 1 to 7, please") == 3


def test_who_has_no_model_is_told_so_and_gets_the_recording() -> None:
    wish, told = answered("1", "", found=[])
    assert (wish.template, wish.model) == ("desk", None)
    assert any("No key of a model is in the environment" in line for line in told)


@pytest.mark.parametrize("template", ["desk", "review", "empty", "newsroom"])
def test_what_is_made_of_the_answers_is_in_order(template: str, tmp_path: Path, bare: Lemming) -> None:
    for file, content in template_files(template).items():
        fs.publish(tmp_path, file, content)
    before = load_config(tmp_path)
    does = "Sum up the news." if template == "empty" else ""
    make_so(tmp_path, Beginning(template, does, OWN, asks_first=True))
    config = load_config(tmp_path)
    assert (config.model("default").provider, config.model("default").model) == ("openai", "gpt-6-luna")
    if before.model("default").provider == "scripted":
        assert config.model("recorded") == before.model("default")
    assert gates_in(config.org)[0].then == "ask"
    if template == "review":
        assert gates_in(config.org) == gates_in(before.org)  # it has its own
    if does:
        first = load_agent(tmp_path, FIRST)
        assert (first.instructions, first.permissions.read_outboxes) == ("Sum up the news.", ["human"])
    checked = bare("-C", str(tmp_path), "validate")
    assert (checked.status, checked.out) == (0, ""), checked


def test_keys_are_found_by_their_variables() -> None:
    found = models_here({"OPENAI_API_KEY": "k", "GROQ_API_KEY": "k", "ANTHROPIC_API_KEY": " "})
    assert [(it.provider, it.model) for it in found if "is set" in it.because] == [
        ("openai", "gpt-6-luna"),
        ("groq", ""),
    ]


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    class Models(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"data": [{"id": "m-1"}, {"id": "m-2"}, {"id": 3}]}).encode()
            self.send_response(200 if self.path == "/v1/models" else 404)
            self.end_headers()
            self.wfile.write(body if self.path == "/v1/models" else b"<html>")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Models) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield serving
        serving.shutdown()


def test_a_server_on_this_machine_names_its_models_and_whatever_else_answers_none(
    server: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lemming.service.models_here._PATIENCE_S", PATIENCE_S)
    address = f"http://127.0.0.1:{server.server_address[1]}"
    assert names_at(f"{address}/v1") == ["m-1", "m-2"]
    assert names_at(f"{address}/else") == []
    server.shutdown()
    server.server_close()
    assert names_at(f"{address}/v1") == []


def test_on_a_terminal_it_asks_and_makes_what_was_answered(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    kept = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_TOKEN"))}
    environment = {**kept, "GROQ_API_KEY": "k", "XDG_STATE_HOME": str(tmp_path / "state")}
    words = [sys.executable, "-m", "lemming", "init", "mine"]
    running = subprocess.Popen(
        words, cwd=tmp_path, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True
    )
    os.close(theirs)
    os.write(ours, b"7\nSort the mail.\n1\nllama-4\n\n")
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
    assert running.wait(PATIENCE_S) == 0, said
    assert b"What is it for?" in said
    assert b'lemming ask assistant "..."' in said
    assert load_agent(tmp_path / "mine", FIRST).instructions == "Sort the mail."
    assert load_config(tmp_path / "mine").model("default").model == "llama-4"


def test_without_a_terminal_nothing_is_asked(tmp_path: Path, bare: Lemming) -> None:
    assert bare("init", str(tmp_path / "news")).status == 0
    assert (tmp_path / "news/agents/editor/resume.json").exists()


def test_an_empty_one_says_what_its_model_cannot_do(tmp_path: Path, bare: Lemming) -> None:
    ran = bare("init", str(tmp_path / "mine"), "--template", "empty")
    assert "cannot sort, plan, check or call tools" in ran.err
    assert "lemming models use KEY" in ran.err
