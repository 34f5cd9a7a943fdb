"""Libraries shared by capabilities, checks and importers. They import the kernel, and no capability."""
