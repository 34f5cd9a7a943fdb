"""The walls around a command of the shell tool."""
