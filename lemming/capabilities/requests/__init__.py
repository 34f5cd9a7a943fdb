"""People and requests: ask, answer, cancel, and run ticks until an answer has arrived."""
