"""`file_edit`, `file_append`: what they change, and what they say when they change nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tool_desk import Desk

from lemming.kernel.access.agent_files import FILE_LIMIT_BYTES
from lemming.kernel.files.file_effects import apply_effect
from lemming.kernel.org.config import OrgSettings, Quota

TOOLS = ["file_edit", "file_append", "file_move", "file_read", "file_write", "file_list", "file_search"]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Return a desk with one file in its workspace."""
    desk = Desk(tmp_path / "org", tools=TOOLS)
    desk.write("agents/alpha/workspace/a.txt", "one\ntwo\nthree\ntwo\n")
    return desk


def content(desk: Desk) -> str:
    return (desk.workspace / "a.txt").read_text()


# --- file_edit ----------------------------------------------------------------------------------


def test_a_passage_that_stands_there_once_is_replaced(desk: Desk) -> None:
    assert desk.do("file_edit", path="a.txt", old="three\n", new="3\n") == "changed line 3 of a.txt"
    assert content(desk) == "one\ntwo\n3\ntwo\n"


def test_an_empty_replacement_takes_the_passage_out(desk: Desk) -> None:
    desk.do("file_edit", path="a.txt", old="one\n", new="")
    assert content(desk) == "two\nthree\ntwo\n"


def test_a_passage_that_stands_there_twice_is_named_with_its_lines(desk: Desk) -> None:
    why = desk.refusal("file_edit", path="a.txt", old="two", new="2")
    assert why == ('file_edit: "a.txt" holds that passage 2 times, in lines 2, 4: give more of it, or all true')


def test_all_of_them_are_replaced_when_asked(desk: Desk) -> None:
    assert desk.do("file_edit", path="a.txt", old="two", new="2", all=True) == "changed 2 passages of a.txt"
    assert content(desk) == "one\n2\nthree\n2\n"


def test_a_passage_that_is_not_there_is_answered_with_the_nearest_line(desk: Desk) -> None:
    why = desk.refusal("file_edit", path="a.txt", old="thre e\n", new="3")
    assert why == 'file_edit: "a.txt" does not hold that passage; line 3 comes nearest: "three"'


def test_a_passage_like_no_line_is_just_not_there(desk: Desk) -> None:
    why = desk.refusal("file_edit", path="a.txt", old="zzzzzzzzzz", new="3")
    assert why == 'file_edit: "a.txt" does not hold that passage'


def test_an_edit_sees_what_the_turn_has_written(desk: Desk) -> None:
    desk.call("file_write", path="new.txt", content="draft")
    desk.call("file_edit", path="new.txt", old="draft", new="final")
    assert desk.call("file_read", path="new.txt").output == "final"


def test_who_may_not_read_a_file_may_not_edit_it(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "org", tools=TOOLS, allow_read=["./workspace"])
    desk.write("shared/a.txt", "secret")
    assert "refused by permissions.file_access.allow_read" in desk.refusal(
        "file_edit", path="shared/a.txt", old="x", new="y"
    )


def test_who_may_not_write_a_file_may_not_edit_it(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "org", tools=TOOLS, allow_write=["./workspace"])
    desk.write("shared/a.txt", "common")
    assert "refused by permissions.file_access.allow_write" in desk.refusal(
        "file_edit", path="shared/a.txt", old="common", new="y"
    )


# --- file_append --------------------------------------------------------------------------------


def test_text_is_added_at_the_end_on_a_line_of_its_own(desk: Desk) -> None:
    desk.do("file_append", path="log.txt", content="first")
    assert desk.do("file_append", path="log.txt", content="second\n") == "log.txt has 13 bytes now"
    assert (desk.workspace / "log.txt").read_text() == "first\nsecond\n"


def test_who_may_only_write_may_append(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "org", tools=TOOLS, allow_read=[])
    desk.write("shared/log.txt", "before\n")
    desk.do("file_append", path="shared/log.txt", content="after\n")
    assert (desk.base / "shared/log.txt").read_text() == "before\nafter\n"


def test_a_file_does_not_grow_beyond_what_can_be_read(desk: Desk) -> None:
    desk.write("agents/alpha/workspace/big.txt", "x" * (FILE_LIMIT_BYTES - 1))
    assert "at most 262144 are allowed" in desk.refusal("file_append", path="big.txt", content="12")


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no list of open files here")
def test_no_call_leaves_a_file_open(desk: Desk) -> None:
    desk.do("file_write", path="deep/er/b.txt", content="b")
    desk.do("file_read", path="deep/er/b.txt")
    desk.do("file_append", path="deep/er/b.txt", content="c")
    desk.do("file_move", path="deep/er/b.txt", to="deep/c.txt")
    desk.do("file_search", text="b", path="deep")
    desk.refusal("file_read", path="deep/none/b.txt")
    open_files = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    assert [file for file in open_files if file.startswith(f"{desk.base}/")] == []


# --- file_move ----------------------------------------------------------------------------------


def test_a_file_is_moved_and_keeps_its_content(desk: Desk) -> None:
    before = content(desk)
    assert desk.do("file_move", path="a.txt", to="shared/old/b.txt") == "moved a.txt to shared/old/b.txt"
    assert (desk.base / "shared/old/b.txt").read_text() == before
    assert not (desk.workspace / "a.txt").exists()


def test_later_calls_of_the_turn_see_the_move(desk: Desk) -> None:
    desk.call("file_move", path="a.txt", to="b.txt")
    assert desk.call("file_list").output == "b.txt"
    assert desk.call("file_read", path="b.txt").output.startswith("one\n")
    assert "does not exist" in desk.refusal("file_read", path="a.txt")
    assert "does not exist" in desk.refusal("file_edit", path="a.txt", old="one", new="1")
    assert desk.call("file_search", text="three", path=".").output == "b.txt:3: three"
    assert desk.call("file_move", path="b.txt", to="a.txt").success
    assert desk.call("file_list").output == "a.txt"


def test_a_place_that_was_left_can_be_written_again(desk: Desk) -> None:
    desk.call("file_move", path="a.txt", to="b.txt")
    desk.call("file_append", path="a.txt", content="anew")
    assert desk.call("file_read", path="a.txt").output == "anew"


def test_nothing_is_written_over_unless_asked(desk: Desk) -> None:
    desk.write("agents/alpha/workspace/b.txt", "b")
    why = desk.refusal("file_move", path="a.txt", to="b.txt")
    assert why == 'file_move: "b.txt" is there already: choose another name, or say over true'
    desk.do("file_move", path="a.txt", to="b.txt", over=True)
    assert (desk.workspace / "b.txt").read_text().startswith("one\n")


def test_a_file_that_somebody_changed_meanwhile_stays(desk: Desk) -> None:
    result = desk.call("file_move", path="a.txt", to="b.txt")
    (desk.workspace / "a.txt").write_text("a person's work")
    for effect in result.effects:
        apply_effect(desk.base, effect)
    assert content(desk) == "a person's work"
    assert (desk.workspace / "b.txt").exists()


def test_a_full_workspace_can_be_tidied_up(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "org", tools=TOOLS, org=OrgSettings(quota=Quota(max_bytes=1 << 20)))
    desk.write("agents/alpha/workspace/a.txt", "x" * 200_000)
    desk.write("agents/alpha/workspace/b.bin", "y" * 800_000)
    assert desk.do("file_move", path="a.txt", to="sub/a.txt") == "moved a.txt to sub/a.txt"


def test_who_may_not_write_a_file_may_not_take_it_away(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "org", tools=TOOLS, allow_write=["./workspace"])
    desk.write("shared/a.txt", "common")
    assert "allow_write" in desk.refusal("file_move", path="shared/a.txt", to="a.txt")


@pytest.mark.parametrize(
    ("path", "to", "why"),
    [
        ("a.txt", "a.txt", "is the file itself"),
        ("a.txt", "./workspace/a.txt", "is the file itself"),
        ("a.txt", "", "is a folder"),
        ("a.txt", "shared", "is a folder"),
        ("a.txt", "a.txt/b", "is not a folder"),
        ("a.txt", "../x", "leads outside"),
        ("a.txt", "/etc/x", "refused by permissions"),
        ("a.txt", "resume.json", "never written by an agent"),
        ("a.txt", "link.txt", "symbolic link"),
        ("none.txt", "b.txt", "does not exist"),
        ("sub", "b.txt", "is a folder"),
        ("link.txt", "b.txt", "symbolic link"),
        (".", "b.txt", "is a folder"),
    ],
)
def test_a_move_that_will_not_do_is_refused_in_words(desk: Desk, path: str, to: str, why: str) -> None:
    (desk.workspace / "sub").mkdir()
    (desk.workspace / "link.txt").symlink_to("a.txt")
    assert why in desk.refusal("file_move", path=path, to=to)


@pytest.mark.parametrize("tool", ["file_edit", "file_append"])
@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("../beta/x.txt", "leads outside"),
        ("", "is a folder"),
        (".", "is a folder"),
        ("a.txt/b", "is not a folder"),
        ("link.txt", "symbolic link"),
        ("twin.txt", "another name elsewhere"),
        ("image.png", "is not UTF-8"),
        ("/etc/passwd", "refused by permissions"),
        ("\u0000", "control characters"),
        ("a\\b", 'separator is "/"'),
        ("x" * 256, "longer than 255 bytes"),
        ("\ud800", "not JSON"),
        ("resume.json/../a", "leads outside"),
    ],
)
def test_a_place_that_will_not_do_is_refused_in_words(desk: Desk, tool: str, path: str, why: str) -> None:
    (desk.workspace / "link.txt").symlink_to("a.txt")
    (desk.workspace / "one.txt").write_text("x")
    (desk.workspace / "twin.txt").hardlink_to(desk.workspace / "one.txt")
    (desk.workspace / "image.png").write_bytes(b"\x89PNG\xff")
    arguments = {"old": "a", "new": "b"} if tool == "file_edit" else {"content": "b"}
    assert why in desk.refusal(tool, path=path, **arguments)
