"""A recording tap: relays TCP byte by byte and keeps what went each way, so that two ends of one
exchange can be compared without asking either of them."""

import dataclasses
import socket
import threading


@dataclasses.dataclass
class Exchange:
    """One HTTP/1.1 request and, as far as it came, its answer. Bodies are without chunk framing."""

    method: str
    path: str
    headers: dict
    body: bytes
    status: int | None
    answer: bytes


class Tap:
    """Listens on `port` and relays to `target_port` on loopback."""

    def __init__(self, target_port):
        self.target_port = target_port
        self.recorded = []
        self.losing = False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.target_port))
            except OSError:
                near.close()
                continue
            up, down = bytearray(), bytearray()
            self.recorded.append((up, down))
            for source, sink, kept in ((near, far, up), (far, near, down)):
                threading.Thread(
                    target=self._relay, args=(source, sink, kept, kept is down), daemon=True).start()

    def lose_next_answer(self):
        """The next answer is read, and its connection is closed without a byte of it."""
        self.losing = True

    def _relay(self, source, sink, kept, downwards):
        try:
            while data := source.recv(65536):
                if downwards and self.losing:
                    self.losing = False
                    break
                kept += data
                sink.sendall(data)
        except OSError:
            pass
        for end in (sink, source):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def forget(self):
        """Drops what was recorded. Only while nothing is under way: what comes next begins a message."""
        for up, down in self.recorded:
            up.clear()
            down.clear()

    def exchanges(self, path=None):
        """All exchanges so far, oldest connection first; only those on `path` if it is given."""
        found = []
        for up, down in list(self.recorded):
            answers = list(_messages(bytes(down), answers=True))
            for n, (start, headers, body) in enumerate(_messages(bytes(up), answers=False)):
                method, where, _ = start.split(" ", 2)
                status, answer = None, b""
                if n < len(answers):
                    status, answer = int(answers[n][0].split(" ")[1]), answers[n][2]
                if path is None or where == path:
                    found.append(Exchange(method, where, headers, body, status, answer))
        return found

    def close(self):
        self.listener.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _messages(data, answers):
    """The HTTP messages in one direction of a connection; the last one may be cut short."""
    while data:
        head, blank, rest = data.partition(b"\r\n\r\n")
        if not blank:
            return
        start, *lines = head.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        if "chunked" in headers.get("transfer-encoding", ""):
            body, data = _dechunk(rest)
        elif "content-length" in headers:
            length = int(headers["content-length"])
            body, data = rest[:length], rest[length:]
        elif answers:
            body, data = rest, b""
        else:
            body, data = b"", rest
        yield start, headers, body


def _dechunk(data):
    body = b""
    while True:
        size, line_end, rest = data.partition(b"\r\n")
        if not line_end:
            return body, b""
        length = int(size.split(b";")[0], 16)
        if length == 0:
            return body, rest.partition(b"\r\n")[2]
        body += rest[:length]
        data = rest[length + 2:]
