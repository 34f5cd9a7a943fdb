"""Read people's guidance for agents in place: `AGENTS.md`, and skills (`SKILL.md`)."""
