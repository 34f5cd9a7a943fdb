"""People and requests: asking, answering, cancelling, and running ticks until an answer is there."""
