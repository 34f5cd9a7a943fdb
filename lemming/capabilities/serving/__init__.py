"""Listening for channels that cannot be looked at between ticks: beside the engine, without its lock."""
