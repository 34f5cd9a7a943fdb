"""Turn of an agent: inputs, prompt, and the loop of model calls and replies."""
