"""Each tool-call parser and each reasoning parser of SGLang, its answers cut at every token: through the proxy no cut
call is a call, and what is whole comes out as SGLang wrote it.

A cut is by length, by an abort, or by the end of the connection; the last is played by an upstream that dies in the
middle of an answer that SGLang gave. What SGLang itself lets out is held against the table in docs/sglang.md.
"""

import pytest

import formats
from cutting import FAULTS, SETTINGS, cut_by_connection, cut_by_model, uncut
from replay import Replay
from running.process import Gateway
from serving import Chain
from table import counted, documented

EACH_SETTING = pytest.mark.parametrize("setting", SETTINGS, indirect=True, scope="module")
STREAMING = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@pytest.mark.parametrize("kind, known", [("tool", formats.TOOL_FORMATS), ("reasoning", formats.REASONING_FORMATS)])
def test_no_parser_of_sglang_is_missed(fleet, kind, known):
    assert sorted(fleet.order("GET", "/parsers")[kind]) == sorted(known)


@pytest.fixture(scope="module")
def setting(request):
    return SETTINGS[request.param]


@pytest.fixture(scope="module")
def chain(setting, fleet):
    chain = Chain(fleet, setting.args)
    yield chain
    chain.close()


@pytest.fixture(scope="module")
def dying():
    """A gateway before an upstream that dies; the same for all settings."""
    replay = Replay()
    with Gateway(f"http://127.0.0.1:{replay.port}") as gateway:
        yield gateway, replay
    replay.close()


@EACH_SETTING
@STREAMING
def test_no_cut_call_comes_out(setting, chain, dying, stream):
    answer = uncut(setting, chain, stream)
    let_out = {cut_by_model(setting, chain, stream, fault) for fault in FAULTS}
    assert all(let_out), "the last cut is after the calls: SGLang lets them out, or nothing was tested"
    if setting.name.startswith("tool-"):
        assert counted(let_out) == documented(setting.name, stream), "docs/sglang.md: tests/sglang/table.py --write"
    cut_by_connection(*dying, answer, stream)
