"""Predefined answers: from a script, or from the journals of an earlier run. No model is called."""
