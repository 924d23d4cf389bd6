"""The tables of docs/sglang.md: what SGLang's serving layer lets through, and what the proxy does.

    python table.py            plays every fault, and fails when the page says otherwise
    python table.py --write    writes the tables anew, that of the parsers too (which takes minutes)

`test_every_parser.py` holds the table of the parsers.
"""

import itertools
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import formats  # noqa: E402
from cutting import FAULTS, SETTINGS, cut_by_model, cuts  # noqa: E402
from faults import ANSWERS, REQUESTS, TASKS, UNKNOWN, Side  # noqa: E402
from running.process import ROOT, Gateway  # noqa: E402
from serving import HERE, TOOLS, Chain, Fleet, calls_in, chat, post, raw, whole  # noqa: E402

PAGE = ROOT / "docs/sglang.md"
PARSER = "qwen25"
FORWARDING = {"by default": {}, "with `SGLANG_FORWARD_UNKNOWN_TOOLS=1`": {"SGLANG_FORWARD_UNKNOWN_TOOLS": "1"}}


def alone(given):
    """What a client gets of SGLang, in a few words."""
    error = given.error()
    if error:
        return f"{given.status}" + " and an error event" * given.is_streamed()
    calls = given.calls()
    if calls:
        return f"{given.status}, {' and '.join(f'`{name}({arguments})`' for name, arguments in calls)}"
    return f"{given.status}, " + ("the call as text" if "{" in given.text() else "an answer" if given.text() else "nothing")


def guarded(given):
    """What a client gets of the proxy: its codes, in order of the faults."""
    error = given.error()
    if error and "faults" in error:
        codes = dict.fromkeys(f"`{fault['code']}`" for fault in error["faults"])
        return f"{given.status}" + " and an error event" * given.is_streamed() + f": {', '.join(codes)}"
    return "the same" if given.status == 200 and not error else alone(given)


def row(*cells):
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def table(*head):
    return [row(*head), row(*["---"] * len(head))]


def asked(faults, head, sglang, gateway):
    """A row for each fault of a request or a task."""
    rows = table(head, "SGLang alone", "Tigertally")
    return rows + [row(name, alone(play(Side(sglang))), guarded(play(Side(gateway)))) for name, play in faults.items()]


def answered(faults, sglang, gateway):
    """Two rows for each fault of the model's answer."""
    rows = table("the model's answer", "", "SGLang alone", "Tigertally")
    for name, play in faults.items():
        for stream in (False, True):
            rows.append(row("" if stream else name, "streamed" if stream else "whole",
                            alone(play(Side(sglang), stream)), guarded(play(Side(gateway), stream))))
    return rows


def played(fleet):
    """The tables of faults, by name."""
    tables = {"dropped": dropped(fleet)}
    for forwards in FORWARDING:
        sglang = fleet.server(["--tool-call-parser", PARSER], FORWARDING[forwards]).port
        with Gateway(f"http://127.0.0.1:{sglang}") as gateway:
            ports = sglang, gateway.port
            if FORWARDING[forwards]:
                tables["unknown tools, forwarded"] = answered(UNKNOWN, *ports)
            else:
                tables["requests"] = asked(REQUESTS, "the request holds", *ports)
                tables["answers"] = answered(ANSWERS, *ports)
                tables["unknown tools"] = answered(UNKNOWN, *ports)
                tables["tasks"] = asked(TASKS, "what comes", *ports)
    return tables


def dropped(fleet):
    """Which parsers drop a call of a tool that was not offered, beside one that was."""
    offered = [tool for tool in TOOLS if tool["function"]["name"] != formats.CALLS[1][0]]
    droppers = {}
    for name, (forwards, env) in itertools.product(formats.TOOL_FORMATS, FORWARDING.items()):
        setting = SETTINGS[f"tool-{name}"]
        if name not in formats.ONE_CALL:
            server = fleet.server(setting.args, env)
            for stream in (False, True):
                body = chat(raw(setting.said), stream, **setting.options, tools=offered)
                came = [called for called, _ in calls_in(whole(post(server.port, body))[1], stream)]
                how = ("streamed" if stream else "whole") + f", {forwards}"
                droppers.setdefault(how, []).extend([f"`{name}`"] if formats.CALLS[1][0] not in came else [])
            server.stop()
    return table("", "drop it") + [row(how, ", ".join(names)) for how, names in droppers.items()]


def parsers(fleet):
    """A row for each tool-call parser: in how many of its cut answers SGLang lets a call out."""
    rows = table("`--tool-call-parser`", "cuts", "SGLang alone, whole", "SGLang alone, streamed", "Tigertally")
    for name, setting in SETTINGS.items():
        if name.startswith("tool-"):
            chain = Chain(fleet, setting.args)
            cells = [counted({cut_by_model(setting, chain, stream, fault) for fault in FAULTS}) for stream in (False, True)]
            rows.append(row(f"`{name.removeprefix('tool-')}`", cuts(setting), *cells, 0))
            chain.close()
    return rows


def counted(let_out):
    """A cell: the count by length and that by an abort, which have been the same."""
    return " or ".join(str(count) for count in sorted(let_out))


def documented(name, stream):
    """The cell of a parser, as the page has it."""
    start = f"| `{name.removeprefix('tool-')}` |"
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith(start)]
    return rows[-1].split(" | ")[3 if stream else 2] if rows else None


def section(name):
    return re.compile(rf"(<!-- {name}, by tests/sglang/table.py -->\n).*?(\n<!-- end -->)", re.S)


def put(text, name, rows):
    assert section(name).search(text), f"{PAGE.name} has no place for the table of {name}"
    return section(name).sub(lambda found: found[1] + "\n" + "\n".join(rows) + "\n" + found[2], text)


def main():
    writes = sys.argv[1:] == ["--write"]
    text = before = PAGE.read_text()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, HERE / "make_tiny.py", folder], check=True)
        with Fleet(folder) as fleet:
            tables = played(fleet)
            if writes:
                tables["parsers"] = parsers(fleet)
    for name, rows in tables.items():
        text = put(text, name, rows)
    if writes:
        PAGE.write_text(text)
    elif text != before:
        old, new = before.splitlines(), text.splitlines()
        sys.exit("\n".join(["docs/sglang.md says otherwise:", *(f"+ {line}" for line in new if line not in old),
                            *(f"- {line}" for line in old if line not in new)]))


if __name__ == "__main__":
    main()
