"""LeMMing: an organisation of AI agents in a folder, run by a clock of ticks."""

__version__ = "0.1.0"
