"""The commands of `lemming`, one file per command or noun. A module is imported when its command is used.

Data goes to standard output, everything said to a person to standard error (`screen`).
"""
