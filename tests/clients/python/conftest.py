"""client → tap → gateway → tap → scripted upstream. The taps tell what the SDK really sends, and whether
the gateway changed a byte of it or of the answer."""

import pathlib
import re
import uuid

import pytest

from desk import Desk
from running.process import Gateway, ScriptedUpstream
from running.tap import Tap

SCRIPT = pathlib.Path(__file__).parents[1] / "script.json"
CHAT = "/v1/chat/completions"


class Rig:
    """`settings`: environment variables for the gateway."""

    def __init__(self, settings=None):
        self.upstream = ScriptedUpstream(SCRIPT)
        self.back = Tap(self.upstream.port)
        try:
            self.gateway = Gateway(f"http://127.0.0.1:{self.back.port}", settings)
        except BaseException:
            self.back.close()
            self.upstream.stop()
            raise
        self.tap = Tap(self.gateway.port)
        self.base_url = f"http://127.0.0.1:{self.tap.port}/v1"

    def sent(self):
        """Chat requests that reached the gateway."""
        return len(self.tap.exchanges(CHAT))

    def forwarded(self):
        """Chat requests that reached the upstream."""
        return len(self.back.exchanges(CHAT))

    def counts(self):
        return self.sent(), self.forwarded()

    def changed(self):
        """Exchanges that were let through, but not as they came: none."""
        beyond = {(without_rid(seen.body), seen.answer) for seen in self.back.exchanges(CHAT)}
        ours = [seen for seen in self.tap.exchanges(CHAT) if passed(seen)]
        return [seen for seen in ours if (seen.body, seen.answer) not in beyond]

    def close(self):
        self.tap.close()
        self.gateway.stop()
        self.back.close()
        self.upstream.stop()


def without_rid(body):
    """A request as it was before the gateway put in the request id for the upstream."""
    return re.sub(rb'^\{"rid":"[^"]*",', b"{", body, count=1)


def passed(exchange):
    """Whether an answer came down that the gateway did not make itself."""
    return exchange.status == 200 and b'"type":"guard_refusal"' not in exchange.answer


@pytest.fixture(scope="session")
def servers():
    rig = Rig()
    yield rig
    rig.close()


@pytest.fixture
def rig(servers):
    """The servers, with a clean record."""
    servers.tap.forget()
    servers.back.forget()
    return servers


@pytest.fixture
def conversation():
    """A conversation of its own for each test."""
    return f"test-{uuid.uuid4()}"


@pytest.fixture
def desk():
    return Desk()
