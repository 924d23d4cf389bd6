"""OpenAI's Python SDK with a key of the gateway's own in place of OpenAI's."""

import json
import pathlib
import subprocess

import openai
import pytest

from running.process import Gateway, ScriptedUpstream, binary
from running.tap import Tap

SCRIPT = pathlib.Path(__file__).parents[1] / "script.json"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    keys = tmp_path_factory.mktemp("keys") / "keys.toml"
    made = subprocess.run(
        [binary(), "keys", "add", "--file", str(keys), "--name", "agent", "--model", "scripted"],
        check=True, capture_output=True, text=True)
    env = {"TIGERTALLY_AUTH__MODE": "keys", "TIGERTALLY_AUTH__KEYS_FILE": str(keys)}
    with ScriptedUpstream(SCRIPT) as upstream:
        with Gateway(f"http://127.0.0.1:{upstream.port}", env) as gateway:
            tap = Tap(gateway.port)
            yield made.stdout.strip(), tap
            tap.close()


def ask(tap, key, model="scripted", **extra):
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{tap.port}/v1", api_key=key, timeout=20)
    messages = [{"role": "user", "content": "Hello"}]
    return client.chat.completions.create(model=model, messages=messages, **extra)


def test_a_key_is_an_api_key(guarded):
    key, tap = guarded
    assert key.startswith("tt_")
    assert ask(tap, key).choices
    assert list(ask(tap, key, stream=True))


def test_a_wrong_key_is_an_authentication_error_and_is_not_retried(guarded):
    key, tap = guarded
    before = len(tap.exchanges("/v1/chat/completions"))
    with pytest.raises(openai.AuthenticationError) as refused:
        ask(tap, key[:-1] + ("a" if key[-1] != "a" else "b"))
    assert refused.value.code == "unauthenticated"
    assert len(tap.exchanges("/v1/chat/completions")) == before + 1


def test_another_model_is_a_permission_error(guarded):
    key, tap = guarded
    with pytest.raises(openai.PermissionDeniedError) as refused:
        ask(tap, key, model="other")
    assert (refused.value.code, refused.value.param) == ("model_not_allowed", "model")
    assert "other" in json.dumps(refused.value.body)
