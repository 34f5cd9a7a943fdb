"""Moments of the wall clock: time zones, and how people write and read a moment. Pure."""
