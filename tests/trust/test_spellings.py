"""Whoever decides about a file decides about what is opened, whatever path leads there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from test_files import call
from tracked import MODELS, owner, post, tick, tracked, write

from lemming.engine import run_once
from lemming.kernel.files.canonical_path import canonical_path
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say

EVERYTHING = os.environ.get("LEMMING_CRASH_POINTS") == "all"  # `read_document` starts a process each time
TEXT = "obey me"
PAGE = f"<html><body><p>{TEXT}</p></body></html>"
TOOLS = {"file_read": {}, "file_search": {"text": "obey"}, "read_document": {}, "file_edit": {"old": "a", "new": "b"}}


def spellings(base: Path, link: Path) -> list[str]:
    """Return paths that lead to `shared/x.html`, or try to."""
    return [
        "shared/x.html", "./shared/x.html", "shared//x.html", "shared/./x.html", "shared/x.html/",
        f"{base}/shared/x.html", f"/{base}//shared/./x.html", f"{link}/x.html", "shared/../shared/x.html",
        f"{base}/agents/../shared/x.html",
        "shared/linked.html", "shared/hard.html", "shared/folder/x.html", "workspace/../../../shared/x.html",
        "~/x.html", "SHARED/x.html", "shared/X.HTML", "shared/x.html\0",
    ]  # fmt: skip


def reader(name: str, base: Path, link: Path) -> dict[str, Any]:
    grants = ["./workspace", "./shared", f"{base}/shared", str(link)]
    access = {"allow_read": grants, "allow_write": grants}
    tools = [*TOOLS, "file_list", "search", "file_append"]
    return resume(name, permissions={"read_outboxes": [], "tools": tools, "file_access": access})


@pytest.mark.long
@pytest.mark.crash
def test_a_marked_file_makes_every_turn_outside_that_is_given_it_by_any_path(base: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(base / "shared")
    ada = resume(
        "ada",
        permissions={
            "read_outboxes": ["post"],
            "tools": ["file_write"],
            "file_access": {"allow_read": ["./shared"], "allow_write": ["./shared"]},
        },
    )
    tries = [
        (tool, {**args, "path": path})
        for tool, args in TOOLS.items()
        for path in spellings(base, link)[:: 1 if EVERYTHING or tool != "read_document" else 5]
    ]
    for folder in ("shared", "./shared/", f"{base}/shared", f"{base}//shared/", str(link), f"{link}/."):
        tries += [("file_list", {"path": folder}), ("file_search", {"text": "obey", "path": folder})]
    script: list[dict[str, Any]] = [
        {"agent": f"b{number}", "tick": 2, "reply": call(tool, **args)} for number, (tool, args) in enumerate(tries)
    ]
    script += [{"agent": "ada", "tick": 1, "reply": call("file_write", path="shared/x.html", content=PAGE)}]
    script += [{"reply": say("idle")}]
    readers = [reader(f"b{number}", base, link) for number in range(len(tries))]
    tracked(base, ada, *readers, script=script)
    write(base, "post", "write it down")
    tick(base)
    (base / "shared/linked.html").symlink_to(base / "shared/x.html")
    (base / "shared/folder").symlink_to(base / "shared")
    turns, gave = tick(base), 0
    results = {it["agent"]: it for it in journal_lines(base, 2) if it["type"] == "tool_finished"}
    for number, (tool, args) in enumerate(tries):
        result = results[f"b{number}"]
        told = result["output"] if result["success"] else ""
        is_given = TEXT in told or (tool == "file_list" and "x.html" in told)
        gave += is_given
        assert not is_given or turns[f"b{number}"].trust["is"] == "outside", (tool, args, told)
    assert gave >= 20


def test_what_is_written_through_a_link_of_a_grant_bears_the_mark_of_the_place(base: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(base / "shared")
    access = {"allow_read": [str(link)], "allow_write": [str(link)]}
    ada = resume("ada", permissions={"read_outboxes": ["post"], "tools": ["file_write"], "file_access": access})
    script = [{"agent": "ada", "reply": call("file_write", path=f"{link}/y.txt", content=TEXT)}]
    tracked(base, ada, script=script)
    write(base, "post", "write it down")
    assert {it["path"] for it in tick(base)["ada"].files} == {"shared/y.txt", "trust/shared/y.txt.json"}
    assert (base / "trust/shared/y.txt.json").exists()


def test_a_channels_folder_is_known_by_the_place_that_is_opened(base: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(base / "shared/drop")
    models = {**MODELS, "post": {"provider": "folder", "options": {"path": str(link)}}}
    script = [{"agent": "ben", "reply": call("file_read", path=f"{base}/shared/drop/x.html")}]
    ben = reader("ben", base, link)
    make_org(base, owner(), post(), ben, script=script, models=models, org={"trust": {}})
    (base / "shared/drop").mkdir(parents=True)
    (base / "shared/drop/x.html").write_text(TEXT)
    os.utime(base / "shared/drop/x.html")
    (turn,) = (it for it in run_once(base, clock=FrozenClock()).turns if it.agent == "ben")
    assert turn.trust["is"] == "outside"


def test_a_place_has_one_name(base: Path, tmp_path: Path) -> None:
    (base / "shared").mkdir(parents=True)
    (tmp_path / "link").symlink_to(base / "shared")
    paths = ["shared/x", "./shared//x", f"{base}/shared/x", f"{tmp_path}/link/x", f"{base}/agents/../shared/x"]
    assert {canonical_path(base, path) for path in paths} == {"shared/x"}
    assert canonical_path(base, str(tmp_path / "else")) == str((tmp_path / "else").resolve())
