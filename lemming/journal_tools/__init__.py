"""The past of an organisation, read from journals: verification, repair, replay, provenance. Never calls a model."""
