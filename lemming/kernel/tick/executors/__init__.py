"""Executors run the turns of a tick. The engine does all the writing, wherever the answers come from."""
