"""The past of an organisation, read from its journals: verification, repair, replay, provenance.

Never calls a model.
"""
