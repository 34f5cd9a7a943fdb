"""The past once more: which question is the very same, and what would have come out otherwise."""
