"""Whatever a model, a stranger or a file's name says, a terminal is not steered by it."""

from __future__ import annotations

import json
import shutil
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from terminal import Lemming

from lemming.commands import terminal
from lemming.engine import run_once
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.testing import FrozenClock, make_org, resume, say

EVIL = (
    "\x1b]0;owned\x07\x1b[2J\x1b[31m\x9b2J\x9d0;x\x9c\x08\x7f\r\u202e\u2066\u200b\u200d\u2028\u2029\u0085"
    "\ufeff\u00ad\u3164\U000e0041\ufdd0"
)
FORGED = f"evil{EVIL}\nFORGED \u3000line"
SHOWN = [
    "tick", "tick 1", "tick 1 --prompts", "tick 1 --replies", "status", "status --check", "plan", "plan 5",
    "plan --why ada bob", "prompt ada", "run-once --dry-run", "memory list ada", "memory get ada key",
    "agents list", "agents show ada", "models list", "inbox bob", "inbox ada", "outbox ada", "why ada",
    "history", "diff 1 2", "show 1", "show 2", "logs", "logs ada", "validate", "doctor", "verify", "replay",
    "repair", "credits show", "watch", "graph", "run-once", "send --to ada hello",
]  # fmt: skip


@pytest.fixture
def hostile(first: Path, base: Path) -> Path:
    """A copy of an organisation that says something hostile wherever one can."""
    return shutil.copytree(first, base, symlinks=True)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The organisation, after two ticks."""
    base = tmp_path_factory.mktemp("hostile") / "org"
    evil_key = f"k{EVIL}"
    entry = {"kind": "message", "payload": {"text": FORGED, FORGED: FORGED, "target": FORGED}, "tags": [FORGED]}
    script = [
        {
            "agent": "ada",
            "tick": 1,
            "reply": {
                "outbox_entries": [entry],
                "tool_calls": [{"tool": f"no{EVIL}", "args": {FORGED: FORGED}},
                               {"tool": "file_write", "args": {"path": f"f{EVIL}", "content": FORGED}}],
                "memory_updates": [{"key": "key", "value": {FORGED: FORGED}}],
                "notes": FORGED,
            },
        },
        {"agent": "bob", "tick": 1, "reply": FORGED},
        {"reply": say(FORGED)},
    ]  # fmt: skip
    ada = resume(
        "ada",
        title=FORGED,
        instructions=FORGED,
        permissions={"read_outboxes": ["*", FORGED], "tools": ["file_write", FORGED],
                     "file_access": {"allow_read": ["./workspace"], "allow_write": ["./workspace"]}},
        **{FORGED: FORGED},
    )  # fmt: skip
    eve = resume("eve", model={"key": evil_key}, title=FORGED)
    models = {
        evil_key: {"provider": "openai", "model": FORGED, "options": {"base_url": f"http://127.0.0.1/{EVIL}"}},
        f"o{EVIL}": {"provider": "ollama", "model": FORGED, "options": {"host": f"127.0.0.1/{EVIL}"}},
        f"c{EVIL}": {"provider": "cli", "options": {"command": [FORGED]}},
        f"p{EVIL}": {"provider": FORGED},
    }
    org = {"history": "git", f"x-o{EVIL}": FORGED, "plugins": []}
    make_org(base, ada, resume("bob"), eve, script=script, models=models, org=org)
    fs.write_atomic(base, f"agents/evil{EVIL}/resume.json", dump_pretty(resume("other", title=FORGED)))
    fs.write_atomic(base, "agents/broken/resume.json", f'{{"name": "{EVIL}'.encode())
    for number in (1, 2):
        fs.write_atomic(base, f"agents/ada/outbox/0000000{number}_x{EVIL}.json", b"{}")
        fs.write_atomic(base, f"shared/s{EVIL}{number}", FORGED.encode())
        run_once(base, clock=FrozenClock())
    return base


def harmful(text: str) -> str:
    """Return what in a text is not to be written to a terminal."""
    bad = {"Cc", "Cf", "Co", "Cn", "Cs", "Zl", "Zp"}
    return "".join(c for c in text if c not in "\n\t" and (unicodedata.category(c) in bad or c == "\u3164"))


@pytest.mark.sample(4)
@pytest.mark.parametrize("as_json", [False, True], ids=["for people", "as JSON"])
@pytest.mark.parametrize("command", SHOWN)
def test_no_command_lets_a_terminal_be_steered(hostile: Path, lemming: Lemming, command: str, as_json: bool) -> None:
    ran = lemming(*command.split(" "), *(["--json"] if as_json else []))
    assert ran.status not in (70, 130)
    assert harmful(ran.out + ran.err) == ""
    if as_json:
        assert all(json.loads(line) is not None for line in ran.out.splitlines())
    elif command.split()[0] not in ("agents", "diff", "memory", "prompt", "run-once", "show") and "--p" not in command:
        assert [line for line in ran.out.splitlines() if line.startswith("FORGED")] == []


def test_a_terminal_with_colours_is_not_steered_either(
    hostile: Path, lemming: Lemming, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    for command in ("status", "tick 1", "plan", "outbox ada", "logs ada", "show 1", "models list"):
        ran = lemming(*command.split())
        left = ran.out + ran.err
        for code in ("0", "1", "2", "31", "32", "33"):
            left = left.replace(f"\033[{code}m", "")
        assert harmful(left) == ""


def test_json_says_the_same_with_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.print_object("probe", {FORGED: FORGED})
    out = capsys.readouterr().out
    assert harmful(out) == ""
    assert json.loads(out) == {"v": 1, "type": "probe", FORGED: FORGED}


def test_pretty_text_keeps_its_lines_and_tabs(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.print_text("one\n\ttwo\x1b[2J\nthree")
    terminal.print_pretty_json({"text": "é\u202e"})
    terminal.print_data("one\nline")
    assert capsys.readouterr().out == 'one\n\ttwo?[2J\nthree\n{\n  "text": "é\\u202e"\n}\none line\n'


@pytest.mark.parametrize(
    "say_it", [terminal.print_data, terminal.print_notice, terminal.print_text, terminal.print_on_last_line]
)
def test_no_way_to_print_lets_a_secret_through(
    say_it: Callable[[str], None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lemming.kernel.base.redaction.secrets import refresh

    with monkeypatch.context() as patch:
        patch.setenv("DOOR_TOKEN", "open-sesame")
        refresh()
        say_it("say open-sesame")
        terminal.print_object("probe", {"open-sesame": "open-sesame"})
    refresh()
    printed = capsys.readouterr()
    assert "sesame" not in printed.out + printed.err
