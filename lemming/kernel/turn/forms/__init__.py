"""The forms of replies: what a model is asked to write, and how what it writes is read."""
