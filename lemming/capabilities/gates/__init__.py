"""Gates: rules for allowing, changing or stopping content at five stages of a turn. Format: docs/gates.md."""
