"""Repairs of damage that need a person's decision."""
