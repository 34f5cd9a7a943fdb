"""Conditions in files, and their regular expressions, for use by capabilities."""
