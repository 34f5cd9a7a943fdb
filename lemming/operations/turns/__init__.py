"""The turns of a tick: idle agents, turns at the same time, and the turns of each agent."""
