"""Attachments: files named in entries, and the images among them for models."""
