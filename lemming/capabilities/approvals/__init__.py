"""Approvals: what gates ask a person about waits, and is done as it was asked: docs/approvals.md."""
