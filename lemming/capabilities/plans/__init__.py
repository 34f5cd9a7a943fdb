"""Plans: agents with a `plan.json` as brain. Format and validation of plans, and execution of runs."""
