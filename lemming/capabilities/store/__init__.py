"""Store of values shared by several agents: `shared/store/` (docs/tools.md)."""
