"""What an agent may touch: grants, opening paths so that the kernel keeps to them, and agreements."""
