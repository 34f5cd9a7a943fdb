"""Access rights of agents: grants, kernel-enforced opening of paths, and workspace trust."""
