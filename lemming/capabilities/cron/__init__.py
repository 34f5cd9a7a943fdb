"""Turns by the clock: `schedule.cron` of a resume, and what an expression means (docs/time.md)."""
