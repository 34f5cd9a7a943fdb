"""What another engine can be held to: the checks of docs/specification.md, from outside.

Nothing here imports an engine: a check writes an organisation as plain folders, runs the engine's command in
it, answers as its model, kills it where that is the point, and reads the files that it left. Python 3.11 and
nothing else is needed.

    python -m conformance --engine "lemming run-once --quiet --trust"
"""
