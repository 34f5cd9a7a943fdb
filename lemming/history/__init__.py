"""The git history of an organisation: kept, read back, forked, gone back to."""
