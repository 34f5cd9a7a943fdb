"""Windows: how much of what was said before a prompt holds, and summaries of the rest (docs/resume.md)."""
