"""What an organisation's own modules register, and what their exceptions mean."""
