"""Work that comes up by the clock: `config/calendar.json` (docs/time.md)."""
