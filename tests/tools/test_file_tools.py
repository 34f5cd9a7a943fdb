"""`file_read`, `file_write`, `file_list`: what they do where they may, and how they refuse where not."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from tool_desk import Desk

from lemming.kernel.access.agent_files import FILE_LIMIT_BYTES
from lemming.kernel.agents import load_agent
from lemming.kernel.base.errors import PermissionDenied, ToolError
from lemming.kernel.tools import ToolRegistry
from lemming.kernel.tools.tool_call import call_tool
from lemming.libraries.agent_folders import LISTING_LIMIT, read_allowed_text

SECRET = "sk-do-not-show"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Return a desk in an organisation that has something to hide."""
    desk = Desk(tmp_path / "org")
    desk.write("config/credits.json", SECRET)
    desk.write("agents/beta/workspace/private.txt", SECRET)
    desk.write("agents/alpha/turns.jsonl", SECRET)
    desk.write("tick.json", '{"current_tick": 42}')
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.txt").write_text(SECRET)
    return desk


# --- what works ---------------------------------------------------------------------------------


def test_a_file_that_was_written_can_be_read(desk: Desk) -> None:
    assert desk.do("file_write", path="notes/today.txt", content="é\n") == "wrote 3 bytes to notes/today.txt"
    assert (desk.workspace / "notes/today.txt").read_text() == "é\n"
    assert desk.do("file_read", path="notes/today.txt") == "é\n"


@pytest.mark.parametrize("path", ["a.txt", "./a.txt", "workspace/a.txt", "./workspace/a.txt", ".//workspace/./a.txt"])
def test_the_workspace_has_several_names(desk: Desk, path: str) -> None:
    desk.write("agents/alpha/workspace/a.txt", "own")
    assert desk.do("file_read", path=path) == "own"


@pytest.mark.parametrize(
    "path", ["a.txt", "./a.txt", "shared/a.txt", "agents/beta/outbox/x.json", "config/a.txt", "logs//x", "./agents/x"]
)
def test_where_a_file_is_said_to_be_written_it_is(desk: Desk, path: str) -> None:
    said = desk.do("file_write", path=path, content="x").removeprefix("wrote 1 byte to ")
    place = said.removeprefix("wrote 1 bytes to ").partition(" (")[0]
    assert [it for it in (desk.base, desk.workspace) if (it / place).is_file()]


@pytest.mark.parametrize("path", ["shared/a.txt", "./shared/a.txt"])
def test_the_shared_folder_is_the_organisations(desk: Desk, path: str) -> None:
    desk.write("shared/a.txt", "common")
    desk.write("agents/alpha/workspace/shared/a.txt", "a trap")
    assert desk.do("file_read", path=path) == "common"


def test_absolute_paths_of_granted_folders_work(desk: Desk, tmp_path: Path) -> None:
    desk.write("shared/a.txt", "common")
    assert desk.do("file_read", path=f"{desk.base}/shared/a.txt") == "common"
    other = Desk(desk.base, allow_read=[str(tmp_path / "outside")], allow_write=[str(tmp_path / "outside")])
    assert other.do("file_read", path=f"{tmp_path}/outside/secret.txt") == SECRET
    other.do("file_write", path=f"{tmp_path}/outside/new/a.txt", content="x")
    assert (tmp_path / "outside/new/a.txt").read_text() == "x"


def test_an_effect_is_relative_to_the_organisation_or_to_the_granted_folder(desk: Desk, tmp_path: Path) -> None:
    outside = str(tmp_path / "outside")
    other = Desk(desk.base, allow_write=["./shared", outside])
    (inside,) = other.call("file_write", path=f"{desk.base}/shared/a", content="x").effects
    (beyond,) = other.call("file_write", path=f"{outside}/b/c", content="x").effects
    assert (inside.root, inside.path) == ("", "shared/a")
    assert (beyond.root, beyond.path) == (outside, "b/c")


def test_a_grant_may_name_a_folder_below_shared(desk: Desk) -> None:
    other = Desk(desk.base, allow_read=["shared/reports"], allow_write=["./shared/reports"])
    other.do("file_write", path="shared/reports/q4.txt", content="x")
    assert other.do("file_read", path="shared/reports/q4.txt") == "x"
    assert "allow_read" in other.refusal("file_read", path="shared/other.txt")
    assert "allow_read" in other.refusal("file_read", path="notes.txt")


def test_a_listing_is_sorted_and_marks_folders_and_links(desk: Desk) -> None:
    for name in ("b.txt", "a.txt", "sub/c.txt", ".hidden"):
        desk.write(f"agents/alpha/workspace/{name}", "")
    (desk.workspace / "link").symlink_to("/etc")
    assert desk.do("file_list") == ".hidden\na.txt\nb.txt\nlink@\nsub/"
    assert desk.do("file_list", path="sub") == "c.txt"


def test_an_empty_or_missing_granted_folder_is_empty(desk: Desk) -> None:
    desk.workspace.rmdir()
    assert desk.do("file_list") == "(empty)"
    assert desk.do("file_list", path="shared") == "(empty)"


def test_a_long_listing_is_capped_and_says_so(desk: Desk) -> None:
    for number in range(LISTING_LIMIT + 5):
        (desk.workspace / f"{number:05d}").touch()
    lines = desk.do("file_list").splitlines()
    assert len(lines) == LISTING_LIMIT + 1
    assert lines[-1] == "[5 more are not shown]"


def test_a_name_with_a_line_end_takes_one_line_of_a_listing(desk: Desk) -> None:
    (desk.workspace / "a\nb").touch()
    assert desk.do("file_list") == "a?b"


def test_a_long_file_is_cut_and_says_how_much(desk: Desk) -> None:
    desk.write("agents/alpha/workspace/long.txt", "x" * 100_000)
    output = desk.do("file_read", path="long.txt")
    assert output.endswith("x\n[cut: the first 32768 of 100000 bytes are shown]")


# --- a turn sees what it has staged --------------------------------------------------------------


def test_a_turn_reads_what_it_has_written(desk: Desk) -> None:
    desk.write("agents/alpha/workspace/a.txt", "old")
    desk.call("file_write", path="a.txt", content="new")
    assert desk.call("file_read", path="./workspace/a.txt").output == "new"
    assert desk.call("file_read", path=f"{desk.workspace}/a.txt").output == "new"
    assert (desk.workspace / "a.txt").read_text() == "old"


def test_a_turn_lists_what_it_has_written(desk: Desk) -> None:
    desk.write("agents/alpha/workspace/a.txt", "")
    desk.call("file_write", path="b.txt", content="")
    desk.call("file_write", path="new/deep/c.txt", content="")
    assert desk.call("file_list").output == "a.txt\nb.txt\nnew/"
    assert desk.call("file_list", path="new").output == "deep/"


def test_a_staged_file_is_no_folder_and_a_staged_folder_is_no_file(desk: Desk) -> None:
    desk.call("file_write", path="a/b", content="")
    assert desk.refusal("file_write", path="a", content="").endswith("is a folder")
    assert desk.refusal("file_write", path="a/b/c", content="").endswith("lies below a file, not a folder")


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "../alpha/resume.json", "../beta/workspace/private.txt", "/etc/passwd", "a/../../b", "..\\x", "a\0b",
        "/proc/self/environ", "//etc/passwd", "~/.bashrc", "shared/../config/credits.json", "a\nb",
        "x" * 256, "a/" * 40, "/", "/shared/a.txt",
    ],
)  # fmt: skip
@pytest.mark.parametrize("tool", ["file_read", "file_write", "file_list"])
def test_a_path_that_leads_elsewhere_is_refused_by_the_named_rule(desk: Desk, tool: str, path: str) -> None:
    content = {"content": "x"} if tool == "file_write" else {}
    refusal = call_tool(tool, {"path": path, **content}, desk.context())
    rule = "write" if tool == "file_write" else "read"
    assert not refusal.success
    assert f'refused by permissions.file_access.allow_{rule} ["./workspace", "./shared"]' in refusal.output
    assert SECRET not in refusal.output


def test_a_refusal_reads_as_a_sentence(desk: Desk) -> None:
    assert desk.refusal("file_read", path="/etc/passwd") == (
        'file_read: "/etc/passwd" refused by permissions.file_access.allow_read ["./workspace", "./shared"]'
    )


def test_absolute_paths_into_the_organisation_need_a_grant_too(desk: Desk) -> None:
    for path in ("config/credits.json", "agents/beta/workspace/private.txt", "agents/alpha/turns.jsonl"):
        assert "allow_read" in desk.refusal("file_read", path=f"{desk.base}/{path}")


@pytest.mark.parametrize("path", ["Shared/a.txt", "SHARED/a.txt", "Workspace/a.txt"])
def test_another_case_is_another_folder_of_the_workspace(desk: Desk, path: str) -> None:
    desk.write("shared/a.txt", "common")
    desk.write("agents/alpha/workspace/a.txt", "own")
    assert "does not exist" in desk.refusal("file_read", path=path)


@pytest.mark.parametrize("grant", ["data", "./data", "../beta", "~/docs", ".", "", "./shared/../config"])
def test_a_grant_that_cannot_be_understood_is_an_error_that_quotes_it(desk: Desk, grant: str) -> None:
    other = Desk(desk.base, allow_read=["./workspace", grant])
    assert f'the resume grants "{grant}", which is not understood' in other.refusal("file_read", path="/etc/hosts")


def test_no_grant_is_no_access(desk: Desk) -> None:
    other = Desk(desk.base, allow_read=[], allow_write=[])
    assert "refused by permissions.file_access.allow_read []" in other.refusal("file_read", path="a.txt")
    assert "refused by permissions.file_access.allow_write []" in other.refusal("file_write", path="a", content="")


@pytest.mark.parametrize(
    "path",
    [
        "resume.json", "RESUME.json", ".git/hooks/pre-commit", ".GIT/config", ".lemming/lock", "poetry.lock",
        "sub/.ssh/authorized_keys", "shared/.git/config", "x.LOCK",
    ],
)  # fmt: skip
def test_names_that_others_trust_are_never_written(desk: Desk, path: str) -> None:
    assert "is never written by an agent" in desk.refusal("file_write", path=path, content="x")


ORGANISATION = [
    "tick.json", "TICK.JSON", "config/org.json", "Config/org.json", "logs/engine.log", "logs/ticks/1.jsonl",
    "agents/alpha/turns.jsonl", "agents/alpha/outbox/00000001_x.json", "agents/beta/memory/goals.json",
    "agents/alpha/logs/activity.log", "Agents/alpha/outbox/x", "agents/gamma/workspace", ".lemming/epoch",
    "agents/alpha/resume.json", "agents/alpha",
]  # fmt: skip


@pytest.mark.parametrize("path", ORGANISATION)
def test_a_grant_of_the_whole_organisation_does_not_open_what_the_engine_writes(desk: Desk, path: str) -> None:
    other = Desk(desk.base, allow_write=[str(desk.base)])
    assert "allow_write" in other.refusal("file_write", path=f"{desk.base}/{path}", content="x")


@pytest.mark.parametrize("path", ["config/org.json", "logs/x", "agents/beta/outbox/x", "agents/beta/workspace/x"])
def test_an_organisation_reached_under_another_name_is_recognised(desk: Desk, tmp_path: Path, path: str) -> None:
    """A volume that ignores case, or a bind mount, gives a folder a second name; a link stands in for it."""
    (tmp_path / "alias").symlink_to(desk.base)
    other = Desk(desk.base, allow_write=[f"{tmp_path}/alias", f"{tmp_path}/alias/config"])
    (desk.base / "logs").mkdir()
    (desk.base / "agents/beta/outbox").mkdir()
    refusal = other.refusal("file_write", path=f"{tmp_path}/alias/{path}", content="x")
    assert "is closed to agents" in refusal or "by the engine and by people only" in refusal


def test_a_grant_of_everything_does_not_open_the_processes(desk: Desk) -> None:
    other = Desk(desk.base, allow_read=["/", "/proc/self"])
    for path in ("/proc/self/environ", "/proc/self/status"):
        assert "/proc is closed to agents" in other.refusal("file_read", path=path)
    assert "/proc is closed to agents" in other.refusal("file_list", path="/proc/self")


def test_a_whole_organisation_can_be_granted_for_reading(desk: Desk) -> None:
    other = Desk(desk.base, allow_read=[str(desk.base)])
    assert other.do("file_read", path=f"{desk.base}/tick.json") == '{"current_tick": 42}'
    other.do("file_write", path="a.txt", content="x")
    assert other.do("file_read", path=f"{desk.workspace}/a.txt") == "x"


@pytest.mark.parametrize("target", ["/etc/passwd", "../../../config/credits.json", "b.txt", "nowhere"])
def test_a_link_in_place_of_a_file_is_refused(desk: Desk, target: str) -> None:
    desk.write("agents/alpha/workspace/b.txt", "own")
    (desk.workspace / "link").symlink_to(target)
    assert '"link" is a symbolic link' in desk.refusal("file_read", path="link")
    assert "it is a symbolic link" in desk.refusal("file_write", path="link", content="x")


def test_a_link_in_place_of_a_folder_is_refused(desk: Desk, tmp_path: Path) -> None:
    (desk.workspace / "link").symlink_to(tmp_path / "outside")
    for refusal in (
        desk.refusal("file_read", path="link/secret.txt"),
        desk.refusal("file_write", path="link/secret.txt", content="x"),
        desk.refusal("file_list", path="link"),
    ):
        assert '"link" is a symbolic link' in refusal
        assert SECRET not in refusal


def test_a_workspace_that_is_a_link_is_refused(desk: Desk, tmp_path: Path) -> None:
    desk.workspace.rmdir()
    desk.workspace.symlink_to(tmp_path / "outside")
    assert '"workspace" is a symbolic link' in desk.refusal("file_read", path="secret.txt")
    assert '"workspace" is a symbolic link' in desk.refusal("file_list")
    assert '"workspace" is a symbolic link' in desk.refusal("file_write", path="new.txt", content="x")


def test_a_hard_link_is_refused(desk: Desk) -> None:
    os.link(desk.base / "config/credits.json", desk.workspace / "innocent.txt")
    for refusal in (
        desk.refusal("file_read", path="innocent.txt"),
        desk.refusal("file_write", path="innocent.txt", content="x"),
    ):
        assert "linked file" in refusal
        assert SECRET not in refusal
    assert (desk.base / "config/credits.json").read_text() == SECRET


def test_pipes_sockets_devices_and_folders_are_no_files(desk: Desk) -> None:
    os.mkfifo(desk.workspace / "pipe")
    (desk.workspace / "folder").mkdir()
    listener = socket.socket(socket.AF_UNIX)
    here = os.open(desk.workspace, os.O_RDONLY)
    with listener:
        listener.bind(f"/proc/self/fd/{here}/socket")
    os.close(here)
    assert "not a regular file" in desk.refusal("file_read", path="pipe")
    assert "cannot be opened" in desk.refusal("file_read", path="socket")
    assert desk.refusal("file_read", path="folder").endswith("is a folder")
    for name in ("pipe", "socket"):
        assert "not a regular file" in desk.refusal("file_write", path=name, content="x")
    assert desk.refusal("file_write", path="folder", content="x").endswith("is a folder")
    other = Desk(desk.base, allow_read=["/dev"])
    assert "not a regular file" in other.refusal("file_read", path="/dev/zero")


@pytest.mark.parametrize("path", [".", "workspace", "shared"])
def test_a_granted_folder_cannot_be_replaced_by_a_file(desk: Desk, path: str) -> None:
    desk.workspace.rmdir()
    assert desk.refusal("file_write", path=path, content="x").endswith("is a folder")


def test_what_is_missing_or_no_folder_is_said_so(desk: Desk, tmp_path: Path) -> None:
    desk.write("agents/alpha/workspace/a.txt", "")
    assert desk.refusal("file_read", path="b.txt") == 'file_read: "b.txt" does not exist'
    assert desk.refusal("file_read", path="no/b.txt").endswith("does not exist")
    assert desk.refusal("file_list", path="no").endswith("does not exist")
    assert '"a.txt" is not a folder' in desk.refusal("file_list", path="a.txt")
    assert '"a.txt" is not a folder' in desk.refusal("file_write", path="a.txt/b", content="")
    other = Desk(desk.base, allow_write=[f"{tmp_path}/absent"])
    assert "cannot be reached" in other.refusal("file_write", path=f"{tmp_path}/absent/a", content="")


def test_files_beyond_the_limit_are_refused_with_their_size(desk: Desk) -> None:
    desk.write("agents/alpha/workspace/big.txt", "x" * (FILE_LIMIT_BYTES + 1))
    refusal = desk.refusal("file_read", path="big.txt")
    assert refusal.endswith(f"has {FILE_LIMIT_BYTES + 1} bytes; at most {FILE_LIMIT_BYTES} can be read")
    desk.write("agents/alpha/workspace/full.txt", "x" * FILE_LIMIT_BYTES)
    assert desk.call("file_read", path="full.txt").success
    refusal = desk.refusal("file_write", path="a.txt", content="x" * 3_000_000)
    assert refusal.endswith(f"would have 3000000 bytes; at most {FILE_LIMIT_BYTES} are allowed")


def test_what_is_not_text_is_not_read(desk: Desk) -> None:
    (desk.workspace / "image.png").write_bytes(b"abc\xff\xfe")
    assert desk.refusal("file_read", path="image.png").endswith("is not UTF-8 text (at byte 3)")


def test_half_a_character_is_not_written(desk: Desk) -> None:
    result = ToolRegistry.get("file_write").invoke
    with pytest.raises(ToolError, match="not text"):
        result(desk.context(), {"path": "a", "content": "\ud800"})


def test_the_engine_reads_context_files_by_the_same_rules(desk: Desk) -> None:
    desk.write("shared/facts.txt", "water is wet")
    agent = load_agent(desk.base, "alpha")
    assert read_allowed_text(agent, desk.base, "./shared/facts.txt") == "water is wet"
    with pytest.raises(PermissionDenied, match="context: "):
        read_allowed_text(agent, desk.base, "../../config/credits.json")
    with pytest.raises(ToolError, match="does not exist"):
        read_allowed_text(agent, desk.base, "shared/none.txt")


def test_a_grant_that_is_not_understood_takes_nothing_from_the_others(tmp_path: Path) -> None:
    desk = Desk(tmp_path, allow_read=["../up", "./workspace", "elsewhere"], allow_write=["~/x", "./workspace"])
    desk.do("file_write", path="a.txt", content="text")
    assert desk.do("file_read", path="a.txt") == "text"
    assert 'the resume grants "elsewhere", which is not understood' in desk.refusal("file_read", path="shared/b")
