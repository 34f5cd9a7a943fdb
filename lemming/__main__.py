"""`python -m lemming`: the same as the command `lemming`."""

import sys

if not sys.flags.safe_path and sys.path[0] != __file__.rpartition("/lemming/")[0]:
    del sys.path[0]  # the folder we happen to be in: nothing that lies in an organisation is to be imported

from lemming.cli import main

main()
