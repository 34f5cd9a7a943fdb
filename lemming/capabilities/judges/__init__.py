"""Judges: agents, models or programs that check the draft of a turn (docs/plans.md)."""
