"""Functions as tools: what a function says of itself, where it comes from, and the processes that run it."""
