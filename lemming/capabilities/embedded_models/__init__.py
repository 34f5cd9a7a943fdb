"""Embedded models: small language models inside this process, with weights shared by all organisations."""
