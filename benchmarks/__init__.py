"""Measurements that are run on purpose: `make bench`. Nothing here is a test."""
