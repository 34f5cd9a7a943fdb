"""The same work done by the engine, by bare Python and by other frameworks, side by side in one run."""
