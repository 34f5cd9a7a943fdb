"""Untrusted JSON Schemas: checks of the schema itself, and violations by a value."""
