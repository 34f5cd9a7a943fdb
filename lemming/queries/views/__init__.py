"""Views of an organisation for the page, `lemming watch` and reports: a module for each view."""
