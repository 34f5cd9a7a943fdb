"""Gates: rules at five places of a turn that say what may pass. Format: docs/gates.md."""
