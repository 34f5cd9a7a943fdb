"""Programs as models: the prompt goes in, the answer comes out."""
