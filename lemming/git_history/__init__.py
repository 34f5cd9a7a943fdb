"""The git history of an organisation: recording, reading, forking and rewinding."""
