"""All health checks of an organisation, in a single list; each command runs a selection."""
