"""How much of a long list of cases is tried: all of it under `make crash`, else a sample."""

import os

EVERYTHING = os.environ.get("LEMMING_CRASH_POINTS") == "all"
