"""gateway → scripted upstream, and Debian's Chromium before the console."""

import os
import shutil

import pytest
from playwright.sync_api import sync_playwright

from running.process import Gateway, ScriptedUpstream

QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync"]


@pytest.fixture(scope="session")
def guard():
    """A guard of the order query's kind: a short budget would end the stories, so none is set."""
    upstream = ScriptedUpstream()
    try:
        gateway = Gateway(f"http://127.0.0.1:{upstream.port}")
        try:
            yield gateway
        finally:
            gateway.stop()
    finally:
        upstream.stop()


@pytest.fixture(scope="session")
def chromium():
    with sync_playwright() as playwright:
        path = os.environ.get("CHROMIUM") or shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=QUIET)
        yield browser
        browser.close()


class Visit:
    """A page that keeps what went wrong in it and what it asked of other hosts."""

    def __init__(self, chromium, base, **context):
        self.wrong, self.elsewhere = [], []
        self.context = chromium.new_context(**context)
        self.page = self.context.new_page()
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", lambda request: request.url.startswith(base)
                     or self.elsewhere.append(request.url))
        self.page.goto(f"{base}/console")

    def _said(self, message):
        if message.type in ("error", "warning"):
            self.wrong.append(message.text)


@pytest.fixture
def visit(chromium, guard):
    """Opens the console; at the end nothing may have gone wrong and nobody else been asked."""
    visits = []

    def open_page(base=None, **context):
        context.setdefault("viewport", {"width": 1280, "height": 900})
        one = Visit(chromium, base or f"http://127.0.0.1:{guard.admin_port}", **context)
        visits.append(one)
        return one.page

    yield open_page
    for one in visits:
        one.context.close()
        assert one.wrong == []
        assert one.elsewhere == []
