"""Reading and writing files: atomic, locked, with cached reads, as hand-editable JSON. Independent of agents."""
