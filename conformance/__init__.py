"""Conformance suite of docs/specification.md for any engine, run from outside.

Nothing here imports an engine: a check writes an organisation as plain folders, runs the engine's command,
answers as the model, kills the engine where needed, and reads the resulting files. Only Python 3.11 is
needed.

    python -m conformance --engine "lemming run-once --quiet --trust"
"""
