"""An organisation whose agents go by guides and skills, one of which another agent has just written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parts import call, remembers

from lemming.kernel.files import fs
from lemming.testing import make_org, resume, say

SHARED = {"allow_read": ["./shared"], "allow_write": ["./shared"]}


def skill(name: str, description: str, body: str = "Do it well.\n") -> str:
    return f"---\nname: {name}\ndescription: {description}\n---\n{body}"


def skilled(base: Path, org: dict[str, Any]) -> None:
    """Skills read over two steps, one written just before, a guide that a person keeps, a skill not there."""
    written = call("file_write", path="shared/skills/new-one/SKILL.md", content=skill("new-one", "written"))
    reads = [call("skill_read", name="pdf-forms"), call("skill_read", name="new-one"), call("skill_read")]
    file = [call("skill_read", name="pdf-forms", file="notes/how.txt"), call("skill_read", name="none")]
    make_org(
        base,
        resume("ada", permissions={"tools": ["file_write"], "file_access": SHARED}),
        resume("bob", skills=["pdf-*", "shared/skills/*"], guides=True, turn={"max_steps": 2}, permissions={}),
        resume("cyd", guides=True, schedule={"wake": "changed"}, permissions={}),
        org=org,
        script=[
            {"agent": "ada", "reply": say("written", tool_calls=[written])},
            {"agent": "bob", "step": 0, "reply": say("reading", tool_calls=reads)},
            {"agent": "bob", "reply": remembers("done", tool_calls=file)},
            {"agent": "cyd", "reply": say("told")},
        ],
    )
    fs.write_atomic(base, "AGENTS.md", b"Be brief.\n")
    fs.write_atomic(base, "agents/bob/AGENTS.md", b"Be polite.\n")
    fs.write_atomic(base, "skills/pdf-forms/SKILL.md", skill("pdf-forms", "fill in: forms").encode())
    fs.write_atomic(base, "skills/pdf-forms/notes/how.txt", b"With care.\n")
