"""Background work: supervised threads, listening servers and their limits."""
