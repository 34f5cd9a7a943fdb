"""Repairs of damage, each by a person's decision."""
