"""Validate limits, grants and trust rules against the organisation: a reference to nothing blocks."""
