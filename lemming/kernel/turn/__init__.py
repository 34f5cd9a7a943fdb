"""One turn of one agent: what it starts from, its prompt, and the loop of asking and acting."""
