"""Folders of other programs, made like those that people have: what importers are tried on."""

from __future__ import annotations

from pathlib import Path

CLAUDE = {
    "CLAUDE.md": "# Project\nUse tabs.\n",
    ".claude/settings.json": "{}\n",
    ".claude/agents/weather-agent.md": """\
---
name: weather-agent
description: Use this agent PROACTIVELY when you need weather data: it reads a skill. Then it returns.
tools: Read, Write, Edit, Bash, Agent(code-reviewer, ghost), mcp__chrome__navigate, TodoWrite, Frobnicate
disallowedTools: Write
model: sonnet
color: green
maxTurns: 5
permissionMode: acceptEdits
memory: project
background: true
skills:
  - weather-fetcher
hooks:
  PreToolUse:
    - matcher: ".*"
      hooks:
        - type: command
          command: python3 ${CLAUDE_PROJECT_DIR}/hooks.py
          timeout: 5000
mcpServers:
  - slack
  - jira:
      command: npx
      env:
        JIRA_TOKEN: not-to-be-kept
        JIRA_URL: ${JIRA_URL}
---

# Weather Agent

You fetch the weather.
""",
    ".claude/agents/deep/code-reviewer.md": """\
---
name: code-reviewer
description: Reviews code for mistakes. Use it after each change.
model: claude-opus-4-6
tools:
  - Read
  - Grep
  - Glob
---
Read the diff. Say what is wrong.
""",
    ".claude/agents/plain.md": "---\nname: plain\ndescription: Does what it is told\n---\n",
    ".claude/agents/README.md": "These are our agents.\n",
    ".claude/agents/broken.md": "---\nname: [x\n---\nbody\n",
    ".claude/skills/weather-fetcher/SKILL.md": """\
---
name: weather-fetcher
description: Fetch it
---
Fetch.
""",
    ".claude/skills/weather-fetcher/reference.md": "Units.\n",
}


def made(folder: Path, files: dict[str, str]) -> Path:
    """Write the files of a source, and return its folder."""
    for file, text in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
    return folder
