"""Model program for the engine: passes the prompt to the suite and prints the answer."""

from __future__ import annotations

import socket
import sys


def main(port: int) -> None:
    """Send standard input to the suite and print the answer."""
    with socket.create_connection(("127.0.0.1", port)) as suite:
        suite.sendall(sys.stdin.buffer.read())
        suite.shutdown(socket.SHUT_WR)
        while chunk := suite.recv(1 << 16):
            sys.stdout.buffer.write(chunk)


if __name__ == "__main__":
    main(int(sys.argv[1]))
