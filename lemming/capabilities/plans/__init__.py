"""Plans: an agent whose brain is `plan.json`. What one is, what is wrong with one, and how a run goes on."""
