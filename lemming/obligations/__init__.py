"""Obligations: which agent or person owes whom an answer, read from entries, ledgers and journals.

Screens and programs read them here; a person's question, answer, decision or cancellation is one entry, written here.
The policies of a turn for them are the capabilities `requests` and `approvals`.
"""
