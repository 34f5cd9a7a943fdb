"""The architecture guide as data: its sections, code blocks and tables."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from lemming.engine import run_once
from lemming.kernel.agents import Agent
from lemming.kernel.org.schedule import AgentSchedule
from lemming.testing import journal_lines, resume, write_script

GUIDE = (Path(__file__).parents[1] / "docs/architecture-guide.md").read_text()


def section(title: str) -> str:
    """Return the text under a heading, up to the next heading of any level outside of code."""
    lines = GUIDE.splitlines()
    start = next(i for i, line in enumerate(lines) if re.fullmatch(rf"#+ {re.escape(title)}", line)) + 1
    in_code, taken = False, []
    for line in lines[start:]:
        in_code ^= line.startswith("```")
        if not in_code and re.match(r"#+ ", line):
            break
        taken.append(line)
    return "\n".join(taken)


def code(title: str, language: str, number: int = 0) -> str:
    """Return a code block of a section."""
    blocks: list[str] = re.findall(rf"```{language}\n(.*?)```", section(title), re.DOTALL)
    return blocks[number]


def json_of(title: str) -> Any:
    """Return a JSON block; comments in it are for the reader of the guide."""
    return json.loads(re.sub(r"//.*", "", code(title, "json")))


def table(title: str) -> list[list[str]]:
    rows = [line.strip("|").split("|") for line in section(title).splitlines() if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in row] for row in rows[2:]]


def functions(title: str) -> dict[str, list[str]]:
    """Return the functions that a section lists, each with the names of its parameters as printed."""
    listed = re.findall(r"^- `(\w+)\((.*?)\)`", section(title), re.MULTILINE)
    return {name: [part.strip() for part in parts.split(",") if part.strip()] for name, parts in listed}


def agent(name: str, every: int = 1, offset: int = 0) -> Agent:
    schedule = AgentSchedule(run_every_n_ticks=every, phase_offset=offset)
    return Agent(name=name, instructions="x", schedule=schedule)


def prompts(base: Path, tick: int, name: str) -> str:
    started = [r for r in journal_lines(base, tick) if r["type"] == "turn_started" and r["agent"] == name]
    return "\n".join(message["content"] for message in started[0]["prompt"])


def used(base: Path, tool: str, permissions: dict[str, Any], *, by: str = "planner", **args: Any) -> str:
    """Let an agent call a tool in a tick, and return what it was told."""
    write_script(base, [{"reply": {"tool_calls": [{"tool": tool, "args": args}]}}])
    plain = resume(by, permissions=permissions)
    (base / f"agents/{by}").mkdir(parents=True, exist_ok=True)
    (base / f"agents/{by}/resume.json").write_text(json.dumps(plain))
    tick = run_once(base).tick
    (finished,) = [r for r in journal_lines(base, tick) if r["type"] == "tool_finished"]
    return str(finished["output"])
