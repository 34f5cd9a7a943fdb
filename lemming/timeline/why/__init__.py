"""Where a text came from: the turn that wrote it, what that turn could see, and back through those."""
