"""The commands of `lemming`.

Each file holds related commands and is imported when a command in the file runs.

A command is a function with a `CommandContext` as the first argument: the organisation, and the output format.
"""
