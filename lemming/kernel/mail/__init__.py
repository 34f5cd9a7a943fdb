"""What agents say to each other: the index of all outboxes, who may see what, and the inbox of a turn."""
