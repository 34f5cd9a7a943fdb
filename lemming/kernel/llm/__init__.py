"""Asking a model: one call with its deadline, retries, circuit, rate limit and price."""
