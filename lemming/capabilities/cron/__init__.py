"""Scheduled turns: `schedule.cron` of a resume, and the meaning of expressions (docs/settings.md)."""
