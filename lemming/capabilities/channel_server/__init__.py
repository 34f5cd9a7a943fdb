"""Serve channels that cannot be polled between ticks: separate from the engine, without its lock."""
