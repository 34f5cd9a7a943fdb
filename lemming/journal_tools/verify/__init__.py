"""Verification of every file against the journals."""
