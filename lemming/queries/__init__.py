"""Read-only facts about an organisation, for any screen: problems, upcoming turns, readiness."""
