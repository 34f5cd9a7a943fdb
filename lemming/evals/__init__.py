"""Evals: cases with expectations of an organisation, run in throw-away copies."""
