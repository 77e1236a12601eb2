"""A TCP proxy that cuts connections wherever it likes."""

from __future__ import annotations

import random
import socket
import threading
from contextlib import suppress


class CuttingProxy:
    """Every connection ends after some bytes that it let through, both ways together."""

    def __init__(self, port: int, *, most_bytes: int, seed: int = 7) -> None:
        self._target = port
        self._most_bytes = most_bytes
        self._chance = random.Random(seed)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.cuts = 0
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for one in list(self._open):
            _shut(one)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server = socket.create_connection(("127.0.0.1", self._target))
        left = [self._chance.randrange(200, self._most_bytes)]
        self._open |= {client, server}
        both = [
            threading.Thread(target=self._copy, args=(one, other, left, (client, server)))
            for one, other in ((client, server), (server, client))
        ]
        for each in both:
            each.start()
        for each in both:
            each.join()
        for one in (client, server):
            one.close()
            self._open.discard(one)

    def _copy(
        self,
        source: socket.socket,
        target: socket.socket,
        left: list[int],
        both: tuple[socket.socket, socket.socket],
    ) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data[: max(0, left[0])])
                left[0] -= len(data)
                if left[0] <= 0:
                    self.cuts += 1
                    break
        for one in both:
            _shut(one)


def _shut(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
