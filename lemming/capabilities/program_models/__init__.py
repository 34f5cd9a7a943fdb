"""Programs as models: the prompt is the input, and the answer is the output."""
