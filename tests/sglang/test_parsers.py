"""What `tests/parsers/*.jsonl` says of Python's parsers and clients, held against them.

The gateway's part of each row is held by `tests/parsers.rs`. Here is what makes those verdicts right: where it lets
bytes pass, all who read them read the same; where they do not, a row refuses.
"""

import base64
import http.client
import json
import pathlib

import httpx
import orjson
import pytest
from openai._streaming import SSEDecoder

HERE = pathlib.Path(__file__).parent
PARSERS = {"json": json.loads, "orjson": orjson.loads}


def rows(name):
    path = HERE.parent / "parsers" / f"{name}.jsonl"
    return [pytest.param(row, id=f"{row.get('side', 'stream')} {row['name']}")
            for row in map(json.loads, path.read_text().split("\n")[:-1])]


def bytes_of(spec):
    if "base64" in spec:
        return base64.b64decode(spec["base64"])
    if "pieces" in spec:
        return "".join(text * times for text, times in spec["pieces"]).encode()
    return spec["text"].encode()


def read(parser, data, at):
    """What a parser finds at a place of the data, as Python writes it."""
    try:
        value = parser(data)
    except (ValueError, RecursionError):
        return "refuses"
    try:
        for step in at:
            value = value[step]
    except (LookupError, TypeError):
        return "nothing there"
    return repr(value)


@pytest.mark.parametrize("row", rows("bodies"))
def test_parsers_make_of_a_body_what_the_table_says(row):
    data = bytes_of(row)
    found = {name: read(parser, data, row["at"]) for name, parser in PARSERS.items()}
    assert found == {name: row[name] for name in PARSERS}


@pytest.mark.parametrize("row", rows("bodies"))
def test_what_passes_is_read_alike_by_whoever_reads_it(row):
    if row["tigertally"] == "passes":
        readings = {row[name] for name in PARSERS} - {"refuses"}
        assert len(readings) <= 1 or row["note"], "two readings need a word why that does no harm"
    else:
        readings = {read(parser, bytes_of(row["near"]), []) for parser in PARSERS.values()}
        assert len(readings - {"refuses"}) == 1, "the nearest honest bytes are read alike"


def called(payloads):
    """The tools that a client is asked to call by the chunks it found."""
    for payload in payloads:
        try:
            chunk = json.loads(payload)
        except ValueError:
            continue
        if not isinstance(chunk, dict):
            continue
        for choice in chunk.get("choices") or []:
            for call in (choice.get("delta") or {}).get("tool_calls") or []:
                yield call["function"]["name"]


def of_lines(lines):
    """A client that reads line by line, and trims."""
    for line in lines:
        line = line.strip().removeprefix("\ufeff")
        if line.startswith("data:"):
            yield line.removeprefix("data:")


READERS = {
    "openai": lambda data: (event.data for event in SSEDecoder().iter_bytes(iter([data]))),
    "by LF": lambda data: of_lines(data.decode().split("\n")),
    "httpx": lambda data: of_lines(httpx.Response(200, content=data).iter_lines()),
}


@pytest.mark.parametrize("row", rows("streams"))
def test_clients_find_in_a_stream_what_the_table_says(row):
    data = row["text"].encode()
    found = {name: list(called(reader(data))) for name, reader in READERS.items()}
    assert found == {name: row[name] for name in READERS}
    if row["tigertally"] == "passes":
        assert not any("rm" in names for names in found.values()), "a call that was not judged"


@pytest.fixture(scope="module")
def sglang(fleet):
    server = fleet.server(["--tool-call-parser", "qwen"])
    yield server.port
    server.stop()


def status_of(port, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def test_sglang_reads_bodies_by_the_parser_of_the_table(sglang):
    """What orjson refuses, it refuses; what passes the gateway and orjson reads, it answers."""
    wrong = []
    for row in (param.values[0] for param in rows("bodies")):
        status = status_of(sglang, bytes_of(row)) if row["side"] == "request" else None
        if row["orjson"] == "refuses":
            wanted = (400, None)
        elif row["tigertally"] == "passes":
            wanted = (200, None)
        else:
            continue
        if status not in wanted:
            wrong.append((row["name"], status))
    assert not wrong
