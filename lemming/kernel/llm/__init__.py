"""Model calls: one call with the deadline, retries, circuit breaker, rate limit and price."""
