"""Windows: limits on earlier messages in a prompt, and summaries of the rest (docs/settings.md)."""
