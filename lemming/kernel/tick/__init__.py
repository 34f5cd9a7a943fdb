"""A tick: select the agents, run their turns, record answers and commit effects to files."""
