"""Many SGLang servers from one import of SGLang, which is what takes a server its seconds to start.

`POST /` with `{"args": […], "env": {…}}` forks a server of SGLang and answers `{"pid", "port"}`; `GET /PID` answers
`{"ended": null}` while that one lives, else how it ended; `DELETE /PID` ends it; `GET /parsers` answers what parsers this
SGLang has. The servers all end with this process.
"""

import http.server
import json
import os
import signal
import socket
import sys
import traceback


def take_orders(host, port, serve, parsers):
    """Takes orders on `port`, for ever. `serve(port, args)` runs one server, in a process of its own."""
    living, ended = set(), {}

    class Orders(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            order = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with socket.socket() as probe:
                probe.bind((host, 0))
                free = probe.getsockname()[1]
            pid = os.fork()
            if pid == 0:
                become(free, **order)
            living.add(pid)
            self.reply({"pid": pid, "port": free})

        def do_GET(self):
            if self.path == "/parsers":
                return self.reply(parsers)
            reap(os.WNOHANG)
            self.reply({"ended": ended.get(self.named())})

        def do_DELETE(self):
            if self.named() in living:
                os.kill(self.named(), signal.SIGKILL)
                reap(0, self.named())
            self.reply({"ended": ended.get(self.named())})

        def named(self):
            return int(self.path.strip("/") or 0)

        def reply(self, value):
            body = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    def become(free, args, env):
        """The child: lets go of what is the parent's, and serves until it is killed."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        orders.socket.close()
        os.environ.update(env)
        try:
            serve(free, args)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(1)

    def reap(flags, pid=None):
        for one in [pid] if pid else list(living):
            found, status = os.waitpid(one, flags)
            if found:
                living.discard(one)
                ended[one] = status

    def end(*_):
        for pid in living:
            os.kill(pid, signal.SIGKILL)
        os._exit(0)

    orders = http.server.HTTPServer((host, port), Orders)
    signal.signal(signal.SIGTERM, end)
    orders.serve_forever()
