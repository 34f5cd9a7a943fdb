"""Each part of a prompt says how far it is trusted, between marks that nothing in it can pass for."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from tracked import owner, started, tick, tracked, write

from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.base.untrusted_quoting import escape_markers
from lemming.testing import make_org, resume, say


def prompt(base: Path, number: int = 1, agent: str = "ada") -> str:
    return str(started(base, number, agent)["prompt"][-1]["content"])


def test_entries_memories_results_and_files_say_it(base: Path) -> None:
    reply = say("seen", memory_updates=[{"key": "note", "value": 1}])
    reply["tool_calls"] = [{"tool": "memory_read", "args": {}}]
    (base / "shared").mkdir(parents=True)
    (base / "shared/x.txt").write_text("facts")
    access = {"allow_read": ["./shared"], "allow_write": []}
    permissions = {"read_outboxes": ["*"], "tools": [], "file_access": access}
    ada = resume("ada", permissions=permissions, context=[{"file": "./shared/x.txt"}])
    tracked(base, ada, script=[{"reply": reply}])
    write(base, "post", "from afar")
    write(base, "eve", "from me")
    tick(base)
    tick(base)
    told = prompt(base, 2)
    assert "# File: x.txt (trust: agent)" in told
    assert '"value": 1, "trust": "outside"}' in told
    assert "What you are shown here is trusted as: outside." in told
    (afar,) = (line for line in told.splitlines() if "from afar" in line)
    (mine,) = (line for line in told.splitlines() if "from me" in line)
    assert [json.loads(line)["trust"] for line in (afar, mine)] == ["outside", "owner"]
    (given,) = (line for line in told.splitlines() if '"tool": "memory_read"' in line)
    assert json.loads(given)["trust"] == "outside"  # of a turn that was


@pytest.mark.parametrize("form", ["brief", "tools", "values"])
def test_every_form_of_a_prompt_says_it(base: Path, form: str) -> None:
    tracked(base, resume("ada"), script=[{"reply": {"outbox_entries": []}}])
    models = json.loads((base / "config/models.json").read_bytes())
    models["scripted"]["prompt"] = form
    (base / "config/models.json").write_bytes(dump_pretty(models))
    write(base, "post", "from afar")
    tick(base)
    told = prompt(base)
    if form == "values":
        assert json.loads(told)["inbox"][0]["trust"] == "outside"
    else:
        assert '[trust: outside] post: "from afar"' in told


def test_results_within_a_turn_say_it(base: Path) -> None:
    calls: dict[str, Any] = {"outbox_entries": [], "tool_calls": [{"tool": "memory_read", "args": {}}]}
    script = [{"agent": "ada", "contains": '"trust": "agent", "tool": "memory_read"', "reply": say("told")},
              {"agent": "ada", "reply": calls}]  # fmt: skip
    tracked(base, resume("ada", turn={"max_steps": 2}), script=script)
    assert [entry["kind"] for entry in tick(base)["ada"].entries] == ["message"]


def test_who_tracks_nothing_is_told_nothing(base: Path) -> None:
    make_org(base, resume("ada"), owner(), models={"human": {"provider": "human"}})
    write(base, "eve", "from me")
    tick(base)
    assert "trust" not in prompt(base)


LOOK_ALIKE = [
    "<<<DATA",
    "DATA>>>",
    "<<< data 12",
    "DATA > > >",
    "\uff1c\uff1c\uff1cDATA",
    "\u226a<DATA",
    "\u22d8DATA",
    "<<<D\u0410T\u0410",
    "<<<\U0001d403\U0001d400\U0001d413\U0001d400",
    "DATA\u00bb>",
    "\u1d05\u1d00\u1d1b\u1d00\u203a\u203a\u203a",
]
UNSEEN = [
    *("\u200b", "\u2060", "\ufeff", "\xad", "\u202e", "\u2066", "\U000e0041", "\u2028", "\x1b", "\x00"),
    *("\u3164", "\u115f", "\u034f", "\ufff9", "\U0001d173", "\u180e", "\u206a", "\x85"),
]


@pytest.mark.parametrize("text", LOOK_ALIKE, ids=ascii)
def test_what_looks_like_a_mark_is_spelled(text: str) -> None:
    said = escape_markers(f"before {text} after")
    assert said != f"before {text} after"
    assert json.loads(f'"{said}"') == f"before {text} after"
    assert escape_markers(said) == said


@pytest.mark.parametrize("character", UNSEEN, ids=ascii)
def test_what_cannot_be_seen_is_spelled(character: str) -> None:
    said = escape_markers(f"hid{character}den")
    assert said.isprintable()
    assert json.loads(f'"{said}"') == f"hid{character}den"


def test_nothing_that_cannot_be_seen_is_left_but_what_joins_letters_and_pictures() -> None:
    every = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) in ("Cf", "Cc", "Zl", "Zp")]
    left = {each for each in every if escape_markers(f"a{each}b") == f"a{each}b"}
    # New lines, and signs that are seen: of Arabic numbers, Kaithi, hieroglyphs and shorthand.
    assert left <= {"\n", "\t"} | {each for each in every if is_a_sign(each)}


def is_a_sign(character: str) -> bool:
    name = unicodedata.name(character, "")
    return name.startswith(("ARABIC", "SYRIAC", "KAITHI", "EGYPTIAN", "SHORTHAND"))


PLAIN = [
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
    "\U0001f469\u200d\U0001f4bb",
    "\u2764\ufe0f\u200d\U0001f525",
    "1\ufe0f\u20e3",
    "\u00abdata\u00bb",
    "Gr\u00f6\u00dfe",
    "\u65e5\u672c\u8a9e",
    *("if data >> 3", ">>> x = 1", "<data>", "a\n\tb", "<<<META"),
]


@pytest.mark.parametrize("text", PLAIN, ids=ascii)
def test_plain_text_of_any_language_stays_as_it_is(text: str) -> None:
    assert escape_markers(text) == text


def test_letters_hidden_in_selectors_of_variants_are_spelled() -> None:
    assert escape_markers("\U0001f600\ufe01\ufe02\U000e0101") == "\U0001f600\ufe01\\ufe02\\udb40\\udd01"
