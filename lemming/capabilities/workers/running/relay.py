"""The first program inside a worker's sandbox: starts the harness, and brings one server, the model gateway, in.

A separate process, started as `python -I -S relay.py CONTROL REPORT PORT SOCKET PROGRAM ARGUMENTS...`, standard
library only. It listens on 127.0.0.1:PORT of the sandbox's own network and copies bytes to and from the Unix socket
SOCKET; PORT 0 listens nowhere. `CONTROL` is a descriptor: each byte is the number of a signal for the harness, and its
end, which the engine's death brings about, is SIGKILL. `REPORT` is a descriptor for the exit status of the harness as a
number (negative for a signal), or for the reason that it could not start. The harness holds neither.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading

_CHUNK_BYTES = 1 << 16


def main() -> None:
    """Start the harness, serve it until it ends, and report its exit status."""
    control, report, port, path, command = *map(int, sys.argv[1:4]), sys.argv[4], sys.argv[5:]
    for descriptor in (control, report):
        os.set_inheritable(descriptor, False)
    if port:
        server = socket.create_server(("127.0.0.1", port), backlog=128)  # before the harness, which may be fast
        threading.Thread(target=_serve, args=(server, path), daemon=True).start()
    try:
        harness = subprocess.Popen(command)
    except OSError as error:
        os.write(report, f"{error.strerror or error}\n".encode())
        os._exit(127)
    threading.Thread(target=_pass_signals, args=(control, harness), daemon=True).start()
    os.close(0)  # only the harness reads its input, and only it holds its outputs open
    os.close(1)
    status = harness.wait()
    os.write(report, str(status).encode())
    # What the harness has left behind is ended by whoever started this process.
    os._exit(status if status >= 0 else 128 - status)


def _pass_signals(control: int, harness: subprocess.Popen[bytes]) -> None:
    while numbers := os.read(control, 64):
        for number in numbers:
            harness.send_signal(number)
    harness.send_signal(signal.SIGKILL)


def _serve(server: socket.socket, path: str) -> None:
    while True:
        client, _ = server.accept()
        gateway = socket.socket(socket.AF_UNIX)
        try:
            gateway.connect(path)
        except OSError:
            client.close()
            continue
        for source, target in ((client, gateway), (gateway, client)):
            threading.Thread(target=_copy, args=(source, target), daemon=True).start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK_BYTES):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)  # half of a connection: an answer may still be under way


if __name__ == "__main__":
    main()
