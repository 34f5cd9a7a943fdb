"""Evals: cases that say what an organisation should come to, run in throw-away copies of it."""
