"""Work beside the engine: threads that are looked after, servers that listen and keep their limits."""
