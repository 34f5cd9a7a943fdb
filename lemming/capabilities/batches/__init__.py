"""Batches: model calls that are sent together through a provider's batch API."""
