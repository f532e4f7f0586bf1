"""The way to the supervisor: a Unix socket, a JSON object a line."""

import os
import socket


class Connection:
    """An open connection. A process that was forked off does not write to it."""

    def __init__(self, path):
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # The supervisor looks a few hundred times a second at most: what short steps write meanwhile lies in this buffer. The
        # kernel gives less than this where its own limit is lower.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self._socket.connect(path)
        self._pid = os.getpid()

    def send(self, line):
        """Send a line with its end. If the supervisor is gone, this process is about to be as well."""
        if os.getpid() == self._pid:
            self._socket.sendall(line.encode())

    def close(self):
        """Nothing more will be sent."""
        self._socket.close()
