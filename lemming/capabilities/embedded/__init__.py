"""Small language models inside this process, whose weights are kept for all organisations."""
