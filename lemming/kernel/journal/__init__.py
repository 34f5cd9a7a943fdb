"""Append-only files with the results of ticks and agents: journals, ledgers and sealed segments."""
