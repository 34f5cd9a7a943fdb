"""An organisation out of Python values: agents, tools, plans."""
