"""The version of this program, in one place: packaging reads it here too."""

__version__ = "0.2.0"
