"""Google Cloud Storage as others wrote it, in a process of its own: prints its port, and ends with its input."""

from __future__ import annotations

import socket
import sys

from gcp_storage_emulator.server import create_server


def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = create_server("127.0.0.1", port, in_memory=True, default_bucket="bucket")
    server.start()
    print(port, flush=True)
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main()
