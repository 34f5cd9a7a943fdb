"""Channels: agents whose brain is outside. What arrives becomes entries; what is for them goes out."""
