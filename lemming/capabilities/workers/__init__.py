"""Coding harnesses as workers: the reply is a text and a patch, and the patch is merged once."""
