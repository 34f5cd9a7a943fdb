"""Redaction of secrets from files and output: known values, key formats, and encodings of both."""
