"""Who does the work of a tick's turns, and where."""
