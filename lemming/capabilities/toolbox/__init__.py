"""The tools that ship, one file a family, loaded when an agent may call them; and the edge of a call."""
