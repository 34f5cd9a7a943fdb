"""What stands between an agent and the machine: file access, and the walls around a command."""
