"""Where the turns of a tick run. The engine does all the writing, wherever the answers come from."""
