"""An upstream that gives an answer recorded of SGLang, and dies in the middle of it."""

import re
import socket
import threading

MARK = re.compile(rb"\[\[replay:(\d+):(\w+)\]\]")


class Replay:
    """Answers a request that holds `[[replay:N:END]]` by the first N bytes of `answer`.

    Then it ends: `clean`ly, as a server does that has no more to say, or `broken`, by closing the connection under a
    body that promised more. An answer that is not a stream has a length, and can only be broken.
    """

    def __init__(self):
        self.answer, self.stream = b"", True
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(peer,), daemon=True).start()

    def _answer(self, peer):
        with peer:
            asked = _request(peer)
            found = MARK.search(asked)
            if not found:
                peer.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                return
            length, is_clean = int(found[1]), found[2] == b"clean"
            part = self.answer[:length]
            kind = b"text/event-stream; charset=utf-8" if self.stream else b"application/json"
            head = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: " + kind + b"\r\n"
            if self.stream:
                chunk = b"%x\r\n%s\r\n" % (len(part), part) if part else b""
                peer.sendall(head + b"transfer-encoding: chunked\r\n\r\n" + chunk + (b"0\r\n\r\n" if is_clean else b""))
            else:
                peer.sendall(head + b"content-length: %d\r\n\r\n" % len(self.answer) + part)

    def close(self):
        self.listener.close()


def _request(peer):
    data = b""
    while b"\r\n\r\n" not in data:
        got = peer.recv(65536)
        if not got:
            return data
        data += got
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: *(\d+)", head, re.I)
    while length and len(body) < int(length[1]):
        got = peer.recv(65536)
        if not got:
            break
        body += got
    return head + body


def places(answer, stream, count):
    """Where to cut: a stream after each of its events before the finish, and within each; else `count` places."""
    if not stream:
        return [(len(answer) * n // count, "broken") for n in range(1, count)]
    out, at = [], 0
    for event in answer.split(b"\n\n")[:-1]:
        if b'"finish_reason":"' in event:
            out += [(at + len(event) // 2, end) for end in ("clean", "broken")]
            break
        out += [(at + len(event) // 2, "broken"), (at + len(event) + 2, "clean")]
        at += len(event) + 2
    return out
