"""The snippets of docs/clients.md, as they stand there but for the address and the conversation."""

import os
import pathlib
import re

import pytest

GUIDE = pathlib.Path(__file__).parents[3] / "docs/clients.md"
SECTIONS = {
    "agents": ["OpenAI Python", "LangChain and LangGraph", "OpenAI Agents SDK", "pydantic-ai", "smolagents"],
    "llama": ["LlamaIndex", "LiteLLM"],
}


def snippet(section):
    """The first Python block of a section."""
    _, _, rest = GUIDE.read_text(encoding="utf-8").partition(f"\n### {section}\n")
    return re.search(r"```python\n(.*?)```", rest.split("\n### ")[0], re.DOTALL)[1]


@pytest.mark.parametrize("section", SECTIONS[os.environ.get("CLIENT_FAMILY", "agents")])
def test_a_snippet_sends_both_headers(rig, conversation, section):
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    code = snippet(section).replace("http://127.0.0.1:8090/v1", rig.base_url)
    told = {}
    exec(compile(code.replace("chat-17", conversation), section, "exec"), told)
    assert told["answer"]
    seen = rig.tap.exchanges("/v1/chat/completions")
    assert [each.status for each in seen] == [200]
    assert seen[0].headers["x-conversation-id"] == conversation
    assert seen[0].headers["x-generation"] == "1"
