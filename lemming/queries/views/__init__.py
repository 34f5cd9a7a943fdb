"""Views of an organisation for the page, `lemming status --watch` and reports: a module for each view."""
