"""The commands of `lemming`, one file for those that belong together, imported when one of them is used.

A command is a function whose first value is `Here` (`options`): the organisation it works on, and whether it
prints objects. Data goes to standard output, everything said to a person to standard error (`screen`).
"""
