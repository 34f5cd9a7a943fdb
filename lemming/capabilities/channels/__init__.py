"""Channels: agents with a brain outside the engine. Messages become entries; addressed entries are delivered."""
