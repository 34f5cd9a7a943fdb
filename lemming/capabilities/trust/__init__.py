"""How far texts are trusted, by where they come from, and how that passes on: docs/trust.md."""
