"""Comparison of the engine with bare Python and other frameworks: the same work in the same run."""
