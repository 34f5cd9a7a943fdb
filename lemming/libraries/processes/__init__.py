"""Child programs of the engine: a reaper around each program, and cleanup of all descendants."""
