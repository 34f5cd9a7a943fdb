"""Between ticks: sleeping, and noticing what changed."""
