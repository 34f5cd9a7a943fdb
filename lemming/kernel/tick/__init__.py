"""One tick: who runs, on what, which answers came, and how their effects reach the files."""
