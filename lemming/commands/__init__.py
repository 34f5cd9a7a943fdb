"""The commands of `lemming`.

Each file holds related commands and is imported when a command in the file runs.

A command is a function with a `CommandContext` (`options`) as the first argument: the organisation, and the
output format. Data goes to standard output. Messages to the user go to standard error (`screen`).
"""
