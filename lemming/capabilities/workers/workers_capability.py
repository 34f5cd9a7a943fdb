"""Capability of workers: coding harnesses that work on a repository."""

from __future__ import annotations

from lemming.ext import Capability


class WorkersCapability(Capability):
    """Workers, for agents with a `workspace` whose model is a harness."""

    name = "workers"
