"""Plugins: registrations by an organisation's own modules, and the classification of their exceptions."""
