"""Who gets a connection to a coordinator: nobody takes those of the others."""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Lobby:
    """Connections whose handshake is not over: nobody knows yet whose they are.

    If all places are taken, the network that has the most of them loses its oldest connection. A
    handshake takes milliseconds, so that a party gets in whoever else calls, from its own address
    or from others.

    Parameters
    ----------
    size : int
        Number of places.
    """

    def __init__(self, size: int) -> None:
        self._size, self._lock = size, threading.Lock()
        # by the socket that was accepted, the oldest first: its network, and the socket in use
        self._lines: dict[socket.socket, tuple[bytes, socket.socket]] = {}

    def enter(self, accepted: socket.socket, host: str) -> None:
        """Take a place, for which another connection may have to leave."""
        with self._lock:
            if len(self._lines) >= self._size:
                self._push_out()
            self._lines[accepted] = network_of(host), accepted

    def wrap(self, accepted: socket.socket, secure: socket.socket) -> None:
        """Note the socket that has taken over a connection.

        Raises
        ------
        ConnectionAbortedError
            If the connection had to leave.
        """
        with self._lock:
            if accepted not in self._lines:
                raise ConnectionAbortedError("the connection had to leave for another one")
            network, _ = self._lines[accepted]
            self._lines[accepted] = network, secure

    def leave(self, accepted: socket.socket) -> None:
        """Give the place back, if it was not lost."""
        with self._lock:
            self._lines.pop(accepted, None)

    def _push_out(self) -> None:
        networks = Counter(network for network, _ in self._lines.values())
        ((busiest, _),) = networks.most_common(1)
        oldest = next(line for line, (network, _) in self._lines.items() if network == busiest)
        _, line = self._lines.pop(oldest)
        with suppress(OSError):  # it has just ended
            # not the method of an SSLSocket, whose state belongs to the connection's own thread
            socket.socket.shutdown(line, socket.SHUT_RDWR)


def network_of(host: str) -> bytes:
    """An address, or the part of one that a single caller may have: 48 bits in IPv6."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return address.packed[:6]
    return address.packed


class Places:
    """Connections of parties that have proved who they are, so many of each.

    Parameters
    ----------
    size : int
        Number of places of a party.
    """

    def __init__(self, size: int) -> None:
        self._size, self._lock = size, threading.Lock()
        self._taken: Counter[str] = Counter()

    @contextmanager
    def of(self, name: str) -> Iterator[bool]:
        """Whether the party has a place left, which the connection then has."""
        with self._lock:
            is_free = self._taken[name] < self._size
            self._taken[name] += is_free
        try:
            yield is_free
        finally:
            with self._lock:
                self._taken[name] -= is_free
