"""Reading and writing files: atomically, locked, stamped, as JSON that people edit. Knows no agents."""
