"""Conditions, and the expressions in them: what files say must hold of a value. Of use to capabilities."""
