"""The turns of a tick: which agents take none, which may run at the same time, and how each agent takes its turns."""
