"""How much of a long list of cases is tried: all of it under `make crash`, else a sample."""

import os

EVERYTHING = os.environ.get("LEMMING_CRASH_POINTS") == "all"

KILL_STRIDE = 1 if EVERYTHING else 3
"""A loop over all moments of a kill tries every one of so many."""
