"""Calendars: scheduled jobs from `config/calendar.json` (docs/time.md)."""
