"""Answers of a shape: a JSON Schema that a turn's, or a request's, answer is held to (docs/formats.md)."""
