"""What people wrote for agents of any kind, read where it lies: `AGENTS.md`, and skills (`SKILL.md`)."""
