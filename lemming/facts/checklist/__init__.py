"""All that can be asked whether it is wrong: one list of checks, of which commands run a selection."""
