"""Measurements that are run on purpose: `make bench`. What they mean: docs/performance.md."""
