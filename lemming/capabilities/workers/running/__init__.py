"""Run a harness: sandbox, model gateway, deadlines, and the end of all its processes."""
