"""Attachments: files that go with entries, and images among them that models are shown."""
