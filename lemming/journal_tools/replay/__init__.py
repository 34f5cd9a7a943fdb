"""Replay of recorded ticks with recorded answers, and comparison of the results."""
