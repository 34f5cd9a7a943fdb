"""Messages between agents: the index of all outboxes, visibility rules, and the inbox of a turn."""
