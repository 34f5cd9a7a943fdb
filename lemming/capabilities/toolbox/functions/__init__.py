"""Function tools: descriptions, locations, and the worker processes for their calls."""
