"""The sandbox around a command of the shell tool."""
