"""Calendars: scheduled jobs from `config/calendar.json` (docs/settings.md)."""
