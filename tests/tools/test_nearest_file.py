"""A path at which nothing is: the result names the nearest one that the agent may use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lemming.engine import run_once
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say

SHARED = {"allow_read": ["./workspace", "./shared"], "allow_write": ["./workspace", "./shared"]}
TOOLS = ["file_read", "file_edit", "file_move", "file_list", "read_document", "attach"]


def output_of(base: Path, tool: str, **args: Any) -> str:
    """Return what a call gave where there are a few files."""
    ada = resume("ada", permissions={"tools": TOOLS, "file_access": SHARED})
    script = [{"step": 0, "reply": {"outbox_entries": [], "tool_calls": [{"tool": tool, "args": args}]}}]
    make_org(base, ada, resume("bob"), script=[*script, {"reply": say("done")}])
    for place in ("shared/sources/notes.txt", "shared/b.txt", "agents/ada/workspace/plan.md"):
        (base / place).parent.mkdir(parents=True, exist_ok=True)
        (base / place).write_text("hello")
    (base / "agents/bob/workspace").mkdir(parents=True)
    (base / "agents/bob/workspace/secrets.txt").write_text("hello")
    (base / "shared/link.txt").symlink_to("/etc/passwd")
    run_once(base, clock=FrozenClock())
    (found,) = (it for it in journal_lines(base, 1) if it["type"] == "tool_finished" and it["agent"] == "ada")
    return str(found["output"])


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("[shared/sources]/notes.txt", "shared/sources/notes.txt"),
        ("notes.txt", "shared/sources/notes.txt"),
        ("shared/source/notes.txt", "shared/sources/notes.txt"),
        ("shared/sources/note.txt", "shared/sources/notes.txt"),
        ("./workspace/paln.md", "plan.md"),
        ("plan.txt", "plan.md"),
    ],
)
def test_the_nearest_path_is_named(base: Path, path: str, meant: str) -> None:
    said = output_of(base, "file_read", path=path)
    assert f'"{path}" does not exist' in said
    assert said.endswith(f'did you mean "{meant}"?)')


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("file_edit", {"path": "paln.md", "old": "h", "new": "j"}),
        ("file_move", {"path": "paln.md", "to": "x.md"}),
        ("read_document", {"path": "paln.md"}),
        ("attach", {"files": [{"path": "paln.md"}]}),
    ],
)
def test_every_tool_that_opens_a_file_names_it(base: Path, tool: str, args: dict[str, Any]) -> None:
    assert 'did you mean "plan.md"?' in output_of(base, tool, **args).replace("\\", "")


@pytest.mark.parametrize("path", ["secrets.txt", "shared/lnk.txt", "passwd", "quite another.zip"])
def test_what_it_may_not_use_and_what_is_far_is_not_named(base: Path, path: str) -> None:
    assert output_of(base, "file_read", path=path).endswith("does not exist")


@pytest.mark.parametrize(
    ("path", "meant"), [("shared/source", "shared/sources"), ("sources", "shared/sources"), ("sharde", "")]
)
def test_where_a_folder_is_listed_a_folder_is_named(base: Path, path: str, meant: str) -> None:
    said = output_of(base, "file_list", path=path)
    assert f'"{path}" does not exist' in said
    assert said.endswith(f'did you mean "{meant}"?)' if meant else "does not exist")
