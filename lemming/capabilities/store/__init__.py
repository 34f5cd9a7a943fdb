"""Values that several agents keep together: `shared/store/` (docs/tools.md)."""
