"""The read model: journals and outboxes folded into a SQLite file, a cache for all screens.

The files remain the truth: verification, limits and approvals read them, and without the cache everything works,
slower. docs/architecture.md, "The read model".
"""
