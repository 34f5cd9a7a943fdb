"""The version of the program, read by packaging too."""

__version__ = "0.2.0"
