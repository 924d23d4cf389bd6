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
    let_out = {fault: cut_by_model(setting, chain, stream, fault) for fault in FAULTS}
    assert not stream or all(let_out.values()), "SGLang lets cut calls out in every stream, or nothing was tested"
    cut_by_connection(*dying, answer, stream)
