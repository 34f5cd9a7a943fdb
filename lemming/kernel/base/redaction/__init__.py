"""Secrets kept out of files and off the screen: what is one, what looks like one, and how one hides."""
