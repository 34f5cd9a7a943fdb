"""Capabilities: each a folder that takes part in turns and can be deleted: docs/capabilities.md."""
