"""Provenance of a text: the turn that wrote the text, the content visible to this turn, and so on backwards."""
