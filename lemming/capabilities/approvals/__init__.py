"""Approvals: actions that wait for a person's decision because a gate says "ask": docs/gates.md."""
