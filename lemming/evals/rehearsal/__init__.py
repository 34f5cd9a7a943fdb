"""Rehearsal of past ticks: find unchanged prompts and compare the results."""
