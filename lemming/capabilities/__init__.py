"""Capabilities: folders that take part in turns, each of which can be deleted: docs/capabilities.md."""
