"""Harnesses as data: one JSON file each, and readers of their output."""
