"""Channels: agents with a brain outside the engine.

Arriving messages become entries; addressed entries are delivered.
"""
