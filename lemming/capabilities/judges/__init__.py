"""Judges: whoever says whether what a turn came to will do (docs/strategies.md)."""
