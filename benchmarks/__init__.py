"""Benchmarks, run on demand with `make bench`. Interpretation: docs/performance.md."""
