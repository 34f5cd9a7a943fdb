"""The tools that ship, loaded by `lemming.tools.ToolRegistry` when an agent may call them."""
