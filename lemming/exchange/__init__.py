"""What other programs keep of their agents: read into resumes, and told of ours in their form."""
