"""What the page, `lemming watch` and reports show of an organisation: a file for each view."""
