"""Reply forms: the simplest form of a reply that can express what one turn may do."""
