"""Build an organisation from Python values: agents, tools, plans."""
