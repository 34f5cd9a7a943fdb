"""The past of an organisation, read from its journals: check it, run it again. Nothing here calls a model."""
