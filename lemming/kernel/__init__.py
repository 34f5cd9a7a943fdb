"""The kernel: it runs turns. Capabilities take part in them; it knows that there are some, never which."""
