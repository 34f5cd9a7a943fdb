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

COMPANY = {
    "COMPANY.md": """\
---
name: Lean Dev Shop
description: Small engineering-focused AI company
slug: lean-dev-shop
schema: agentcompanies/v1
version: 1.0.0
license: MIT
authors:
  - name: Example Org
goals:
  - Build and ship software products
requirements:
  secrets:
    - OPENAI_API_KEY
---
We build small things well.
""",
    "agents/ceo/AGENTS.md": """\
---
name: CEO
title: Chief Executive Officer
reportsTo: null
skills:
  - review
  - paperclip
---
You lead.
""",
    "agents/cto/AGENTS.md": """\
---
name: CTO
title: Chief Technology Officer
reportsTo: ceo
docs:
  - HANDOFFS.md
metadata:
  tier: 2
---
You plan. Follow `HANDOFFS.md`.
""",
    "agents/cto/HANDOFFS.md": "# Handing off\nSay what is done.\n",
    "agents/cto/WAKE-CHECKLIST.md": "# On waking\nRead everything.\n",
    "agents/staff-engineer/AGENTS.md": "---\nname: Staff Engineer\n---\nYou build.\n",
    "teams/engineering/TEAM.md": """\
---
name: Engineering
manager: ../../agents/cto/AGENTS.md
includes:
  - ../../agents/staff-engineer/AGENTS.md
  - ../../skills/review/SKILL.md
tags: [engineering]
---
The engineering team.
""",
    "projects/q2/PROJECT.md": "---\nname: Q2 Launch\nowner: cto\n---\nLaunch it.\n",
    "projects/q2/tasks/onboard/TASK.md": "---\nname: Onboard\nassignee: cto\n---\nMap the code.\n",
    "tasks/monday-review/TASK.md": """\
---
name: Monday Review
assignee: ceo
recurring: true
---
Review the week.
""",
    "skills/review/SKILL.md": "---\nname: review\ndescription: Paranoid code review\n---\nLook twice.\n",
    ".paperclip.yaml": """\
schema: paperclip/v1
agents:
  ceo:
    adapter:
      type: claude_local
      config:
        model: claude-opus-4-6
    inputs:
      env:
        GH_TOKEN:
          kind: secret
          requirement: optional
    permissionGrants:
    - permissionKey: tasks:assign
  staff-engineer:
    role: engineer
    adapter:
      type: opencode_local
      config:
        model: example-provider/example-model
        timeoutSec: 900
    runtime:
      heartbeat:
        enabled: true
        intervalSec: 43200
routines:
  monday-review:
    triggers:
      - kind: schedule
        cronExpression: "0 9 * * 1"
        timezone: America/Chicago
sidebar:
  agents: [ceo, cto]
""",
}

OPENCLAW = {
    "openclaw.json": """\
{
  // what everybody has
  agents: {
    defaults: {
      workspace: "~/.openclaw/workspace",
      model: { primary: "anthropic/claude-opus-4-6",
               fallbacks: ["openrouter/deepseek/deepseek-v3.2"] },
    },
    list: [
      {
        id: "main", default: true,
        heartbeat: { every: "30m", target: "last",
                     activeHours: { start: "08:00", end: "22:00", timezone: "America/New_York" } },
        tools: { allow: ["read", "exec", "web_fetch"], deny: ["write"] },
        sandbox: { mode: "off" }, apiKey: "not-to-be-kept",
      },
      { id: "work", name: "Worker", workspace: "/home/x/.openclaw/workspace-work",
        model: "openai/gpt-5-mini" },
    ],
  },
  channels: { telegram: { enabled: true } },
}
""",
    "workspace/SOUL.md": "# Who you are\nWarm, and brief.\n",
    "workspace/AGENTS.md": "# Every session\nRead MEMORY.md.\n",
    "workspace/USER.md": "# About your human\n- Name: Peter\n",
    "workspace/IDENTITY.md": """\
# IDENTITY.md

- **Name:** Clawd
- **Creature:** lobster
- **Vibe:** calm: kind
- **Emoji:** \U0001f99e
- **Avatar:**
""",
    "workspace/TOOLS.md": "ssh: home-server\n",
    "workspace/HEARTBEAT.md": "# Checklist\n- Anything urgent?\n",
    "workspace/BOOT.md": "Say hello.\n",
    "workspace/MEMORY.md": "Peter likes tea.\n",
    "workspace/memory/2026-01-01.md": "Met Peter.\n",
    "workspace/skills/poll/SKILL.md": "---\nname: poll\ndescription: Poll a feed\n---\nPoll.\n",
    "workspace/canvas/index.html": "<p>\n",
    "workspace-work/AGENTS.md": "Work.\n",
    "workspace-work/HEARTBEAT.md": "# Nothing yet\n\n",
}


def made(folder: Path, files: dict[str, str]) -> Path:
    """Write the files of a source, and return its folder."""
    for file, text in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
    return folder
