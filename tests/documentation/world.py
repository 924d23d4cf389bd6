"""The guard before a model that says what a test tells it to, and a client that keeps what it got."""

import http.client
import http.server
import json
import threading

from running.process import Gateway

PATIENCE = 20


class Model:
    """An upstream: gives the reply that it was told to, at once or when it is let go on."""

    def __init__(self):
        self.reply = (200, "application/json", b"{}")
        self.go, self.asked = threading.Event(), threading.Event()
        self.go.set()
        model = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self._say(200, "text/plain", b"")

            def do_POST(self):
                self.rfile.read(int(self.headers["content-length"]))
                status, kind, body = model.reply
                model.asked.set()
                model.go.wait(PATIENCE)
                self._say(status, kind, body)

            def _say(self, status, kind, body):
                try:
                    self.send_response(status)
                    self.send_header("content-type", kind)
                    self.send_header("content-length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:  # a client that waits no longer
                    pass

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def says(self, message, finish="tool_calls"):
        """The next reply: one whole answer with that message."""
        choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
        answer = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        self.reply = (200, "application/json", json.dumps(answer).encode())

    def streams(self, *deltas, finish="tool_calls", done=True):
        """The next reply: a stream of these deltas."""
        finishes = [None] * (len(deltas) - 1) + [finish]
        events = [{"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m",
                   "choices": [{"index": 0, "delta": delta, "finish_reason": why}]}
                  for delta, why in zip(deltas, finishes)]
        lines = [json.dumps(event) for event in events] + ["[DONE]"] * done
        self.reply = (200, "text/event-stream", "".join(f"data: {line}\n\n" for line in lines).encode())

    def holds(self):
        """From now on replies wait until `lets_go`."""
        self.asked.clear()
        self.go.clear()

    def lets_go(self):
        self.go.set()

    def stop(self):
        self.go.set()
        self.server.shutdown()
        self.server.server_close()


class Answer:
    """What the client got."""

    def __init__(self, status, headers, text):
        self.status, self.headers, self.text = status, headers, text

    def error(self):
        """The refusal's body, also where it is the last event of a stream."""
        text = self.text.rstrip().rpartition("data: ")[2]
        return json.loads(text)

    def code(self):
        return self.error()["error"]["code"]


class World:
    """One guard with settings of its own, in a process."""

    def __init__(self, upstream=None, **settings):
        self.model = Model()
        env = {f"TIGERTALLY_{name.upper()}": value for name, value in settings.items()}
        try:
            self.guard = Gateway(upstream or f"http://127.0.0.1:{self.model.port}", env)
        except BaseException:
            self.model.stop()
            raise

    def send(self, method, path, body=b"", headers=(), port=None):
        """Sends a request with these headers, each as often as it is there."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.guard.port, timeout=PATIENCE)
        connection.putrequest(method, path)
        for name, value in [("content-type", "application/json"), ("content-length", str(len(body))), *headers]:
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        got = Answer(answer.status, answer.headers, answer.read().decode())
        connection.close()
        return got

    def chat(self, request, conversation=None, generation=None, headers=()):
        """Asks the model; `request` is an object, or the bytes themselves."""
        body = request if isinstance(request, bytes) else json.dumps(request).encode()
        headers = list(headers)
        if conversation is not None:
            headers.append(("x-conversation-id", conversation))
        if generation is not None:
            headers.append(("x-generation", str(generation)))
        return self.send("POST", "/v1/chat/completions", body, headers)

    def control(self, method, path, body=None):
        """Asks the control API about conversation `chat-17`."""
        text = json.dumps(body).encode() if body is not None else b""
        return self.send(method, f"/guard/v1/conversations/chat-17{path}", text)

    def stop(self):
        self.guard.stop()
        self.model.stop()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
