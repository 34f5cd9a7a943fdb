"""Model calls that go out together through a provider's batch API."""
