"""The past of an organisation, read from the journals: verification, repair, replay, provenance.

Never calls a model.
"""
