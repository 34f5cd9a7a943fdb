"""Findings: problems in the behaviour of agents, detected in the organisation's files by rules, without a model."""
