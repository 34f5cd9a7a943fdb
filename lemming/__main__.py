"""`python -m lemming`, and the command `lemming`."""

import gc
import sys


def main() -> None:
    """Run the `lemming` command line in this process."""
    gc.set_threshold(
        50_000, 50, 100
    )  # everything imported so far lives until the end: collecting cycles of it costs an eighth
    if "run-forever" in sys.argv:  # a service may be stopped at any moment, and that is no failure
        from lemming.commands.signals import exit_on_signals_at_startup

        exit_on_signals_at_startup()
    from lemming.cli import main

    main()


if __name__ == "__main__":
    if not sys.flags.safe_path and sys.path[0] != __file__.rpartition("/lemming/")[0]:
        del sys.path[0]  # the folder we happen to be in: nothing that lies in an organisation is imported
    main()
