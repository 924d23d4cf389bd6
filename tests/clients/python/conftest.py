"""client → tap → gateway → scripted upstream; the tap counts what the SDK really sends."""

import json
import pathlib
import urllib.request
import uuid

import pytest

from running.process import Gateway, ScriptedUpstream
from running.tap import Tap

SCRIPT = pathlib.Path(__file__).parents[1] / "script.json"


class Rig:
    def __init__(self):
        self.upstream = ScriptedUpstream(SCRIPT)
        try:
            self.gateway = Gateway(f"http://127.0.0.1:{self.upstream.port}")
        except BaseException:
            self.upstream.stop()
            raise
        self.tap = Tap(self.gateway.port)
        self.base_url = f"http://127.0.0.1:{self.tap.port}/v1"

    def sent(self):
        """Chat requests that reached the gateway."""
        return len(self.tap.exchanges("/v1/chat/completions"))

    def forwarded(self):
        """Chat requests that reached the upstream."""
        url = f"http://127.0.0.1:{self.upstream.port}/_seen"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["requests"]

    def close(self):
        self.tap.close()
        self.gateway.stop()
        self.upstream.stop()


@pytest.fixture(scope="session")
def rig():
    rig = Rig()
    yield rig
    rig.close()


@pytest.fixture
def conversation():
    """A conversation of its own for each test."""
    return f"test-{uuid.uuid4()}"
