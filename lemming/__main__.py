"""`python -m lemming`: the same as the command `lemming`."""

from lemming.cli import main

main()
