"""The program that an engine runs as its model: it passes the prompt to the suite and prints the answer."""

from __future__ import annotations

import socket
import sys


def main(port: int) -> None:
    """Send all of standard input to the suite; print its answer."""
    with socket.create_connection(("127.0.0.1", port)) as suite:
        suite.sendall(sys.stdin.buffer.read())
        suite.shutdown(socket.SHUT_WR)
        while part := suite.recv(1 << 16):
            sys.stdout.buffer.write(part)


if __name__ == "__main__":
    main(int(sys.argv[1]))
