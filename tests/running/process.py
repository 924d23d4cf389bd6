"""Child processes of a test: started on free ports, waited for by a question, always ended."""

import os
import pathlib
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def binary():
    """The built program: TIGERTALLY_BIN, or the newest build in the target directory."""
    named = os.environ.get("TIGERTALLY_BIN")
    if named:
        return named
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    built = [p for p in (target / "release/tigertally", target / "debug/tigertally") if p.exists()]
    if not built:
        raise FileNotFoundError("no tigertally binary: run `cargo build`, or set TIGERTALLY_BIN")
    return str(max(built, key=lambda p: p.stat().st_mtime))


def inherited():
    """Our environment without what the program under test would take for its configuration."""
    return {key: value for key, value in os.environ.items() if not key.startswith("TIGERTALLY_")}


class Process:
    """A server in a child process whose output is kept line by line, with the time of each line."""

    def __init__(self, argv, ready_url, env=None, seconds=60):
        self.scratch = tempfile.TemporaryDirectory()
        self.lines = []
        self.grown = threading.Condition()
        self.child = subprocess.Popen(
            argv, cwd=self.scratch.name, env={**inherited(), **(env or {})},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        threading.Thread(target=self._read, daemon=True).start()
        try:
            self._wait_ready(ready_url, seconds)
        except BaseException:
            self.stop()
            raise

    def _read(self):
        for line in self.child.stdout:
            with self.grown:
                self.lines.append((time.monotonic(), line.decode(errors="replace").rstrip()))
                self.grown.notify_all()

    def _wait_ready(self, url, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.child.poll() is not None:
                raise RuntimeError(f"{self.child.args[0]} ended early:\n{self.output()}")
            try:
                with urllib.request.urlopen(url, timeout=2) as answer:
                    answer.read()
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
        raise TimeoutError(f"{url} did not answer in {seconds} s:\n{self.output()}")

    def output(self):
        return "\n".join(line for _, line in self.lines[-60:])

    def wait_for_line(self, text, seconds):
        """When the first line holding `text` came, or None when none came within `seconds`."""
        def seen():
            return next((when for when, line in self.lines if text in line), None)
        with self.grown:
            self.grown.wait_for(lambda: seen() is not None, timeout=seconds)
            return seen()

    def stop(self):
        self.child.terminate()
        try:
            self.child.wait(10)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        self.scratch.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


class Gateway(Process):
    """`tigertally serve` in front of `upstream`; `port` takes clients, `admin_port` has the metrics."""

    def __init__(self, upstream, env=None):
        self.port, self.admin_port = free_port(), free_port()
        super().__init__(
            [binary(), "serve", "--upstream", upstream,
             "--listen", f"127.0.0.1:{self.port}", "--admin-listen", f"127.0.0.1:{self.admin_port}",
             "--store", "memory:"],
            f"http://127.0.0.1:{self.port}/health", env)


class ScriptedUpstream(Process):
    """`tigertally scripted-upstream`, with a script file when one is given."""

    def __init__(self, script=None):
        self.port = free_port()
        argv = [binary(), "scripted-upstream", "--listen", f"127.0.0.1:{self.port}"]
        if script is not None:
            argv += ["--script", str(script)]
        super().__init__(argv, f"http://127.0.0.1:{self.port}/health")
