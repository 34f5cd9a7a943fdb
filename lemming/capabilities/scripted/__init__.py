"""Answers that are known before: from a script, or from journals of an earlier run. No model is asked."""
