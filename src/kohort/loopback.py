"""Sets up TCP connections between two ends on one machine, where pacing only costs time."""

from __future__ import annotations

import contextlib
import socket

from kohort.portable import PORTABLE


def send_at_once(sock: socket.socket) -> None:
    """Free a connection within this machine from pacing; one to another machine keeps what the system chose.

    Where the system's congestion control is BBR, the kernel sets a timer for every 64 KB and sends when it has expired.
    Measured on a virtual machine: a third of the CPU of a broker whose records are fetched over loopback, and 0.75
    instead of 1.3 times the throughput of Apache Kafka. Reno does not pace, and every Linux has it and allows it.
    """
    if PORTABLE or not hasattr(socket, "TCP_CONGESTION"):
        return
    # An OSError means that the peer is gone, which the next read reports, or that the system has no Reno.
    with contextlib.suppress(OSError):
        if sock.getsockname()[0] == sock.getpeername()[0]:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
