"""Recorded ticks, run again with recorded answers and compared."""
