"""Structured answers: a JSON Schema for the answers of a turn or a request (docs/formats.md)."""
