"""Free TCP ports on this machine's loopback address."""

from __future__ import annotations

import random
import socket

HOST = "127.0.0.1"

# Below the ranges from which Linux and macOS assign ports to outgoing connections: no client takes the port of a
# stopped service, or a port between its check and the service's bind.
RANGE = range(20000, 30000)


def is_free(port: int) -> bool:
    """Return whether a service could listen on ``port`` now."""
    with socket.socket() as probe:
        # As servers do, so that earlier connections in TIME_WAIT do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_port(taken: set[int]) -> int:
    """Return a free port that is not in ``taken``, and add it there."""
    candidates = (port for port in random.sample(RANGE, len(RANGE)) if port not in taken and is_free(port))
    port = next(candidates)
    taken.add(port)
    return port
