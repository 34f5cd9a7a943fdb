"""Programs that the engine starts: a keeper around each, and what is below them found and ended."""
