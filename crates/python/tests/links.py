"""Links to origins, which tests cut."""

import contextlib
import os
import random
import socket
import struct
import threading
import time

import pytest

import origins

# Longer than five retries were.
AWAY_S = 4


class Link:
    """A TCP link to an origin, which can be cut: what is open is reset, new connections are refused."""

    def __init__(self, origin):
        host, port = origin.url.removeprefix("http://").split(":")
        self._upstream = host, int(port)
        # An address of its own: while nobody listens there, nobody else is given its port.
        self._address = f"127.{random.randrange(1, 255)}.{os.getpid() % 255}.{random.randrange(1, 255)}", 0
        self._lock, self._open, self._listener, self._brought = threading.Lock(), set(), None, 0
        self.mend()

    @property
    def settings(self):
        url = "http://{}:{}".format(*self._address)
        return {"endpoint_url": url, "oss_endpoint": url, "oss_region": "cn-hangzhou"}

    def mend(self):
        listener = socket.create_server(self._address, backlog=512)
        self._address, self._listener = listener.getsockname(), listener
        threading.Thread(target=self._serve, args=(listener,), daemon=True).start()

    def cut(self):
        with self._lock:
            listener, self._listener = self._listener, None
            ends, self._open = self._open, set()
        # It wakes the thread that accepts; closing would not.
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for end in ends:
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RD)
            end.close()

    def away_after(self, brought, seconds=AWAY_S):
        """Away for so long from when so many bytes have come from the origin."""

        def cut():
            until = time.monotonic() + origins.PATIENCE_S
            while self._brought < brought and time.monotonic() < until:
                time.sleep(0.002)
            self.cut()
            time.sleep(seconds)
            self.mend()

        thread = threading.Thread(target=cut)
        thread.start()
        return thread

    def _serve(self, listener):
        while True:
            try:
                client, _ = listener.accept()
                origin = socket.create_connection(self._upstream)
            except OSError:
                return
            with self._lock:
                ends = {client, origin}
                if self._listener is not listener:
                    for end in ends:
                        end.close()
                    return
                self._open |= ends
            threading.Thread(target=self._pump, args=(client, origin, False), daemon=True).start()
            threading.Thread(target=self._pump, args=(origin, client, True), daemon=True).start()

    def _pump(self, source, sink, counts):
        with contextlib.suppress(OSError):
            while piece := source.recv(1 << 16):
                sink.sendall(piece)
                if counts:
                    self._brought += len(piece)
            sink.shutdown(socket.SHUT_WR)


@pytest.fixture
def link():
    """Links to origins, cut when the test is over."""
    links = []

    def make(origin):
        links.append(Link(origin))
        return links[-1]

    yield make
    for each in links:
        with contextlib.suppress(AttributeError):
            each.cut()
