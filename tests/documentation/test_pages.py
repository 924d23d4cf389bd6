"""What the pages show is what the program does."""

import re
import subprocess

import pytest

import examples
import reference
from running.process import ROOT, binary, free_port, inherited

QUICKSTART = ROOT / "docs/quickstart.md"
BLOCK = re.compile(r"^```(sh|text)\n(.*?)^```$", re.M | re.S)


@pytest.mark.parametrize("code", examples.EXAMPLES)
def test_an_error_body_is_what_the_program_answers(code):
    one = examples.provoked(code)
    assert examples.told(code, one), one.answer.text
    shown = examples.on_the_page()[code]
    assert shown == one.text(code), "tests/documentation/examples.py --write"


def test_the_error_bodies_are_those_of_all_codes():
    listed = [code for codes in examples.SECTIONS.values() for code in codes.split()]
    explained = set(re.findall(r"^\| (?:\d{3} \| )?((?:`\w+`(?:, )?)+) \|", (ROOT / "docs/codes.md").read_text(), re.M))
    explained = {code for codes in explained for code in re.findall(r"\w+", codes)}
    assert sorted(listed) == sorted(explained) == sorted(examples.EXAMPLES)
    assert list(examples.on_the_page()) == listed


def test_the_tables_of_keys_are_what_the_program_tells():
    known, page = reference.keys(), reference.CONFIGURATION.read_text()
    assert reference.configuration(page, known) == page, "tests/documentation/reference.py --write"
    asked = [what for mark, _ in reference.blocks(page) for what in mark.split()[1:]]
    for key in known:
        assert sum(reference.is_under(key["key"], what) for what in asked) == 1, key["key"]
    assert len(known) > 70 and all(reference.is_under("upstream.url", what) == (what == "upstream") for what in asked)
    known[3]["what"] += "."
    assert reference.configuration(page, known) != page


@pytest.fixture(scope="module")
def metrics():
    """The families of a fresh process."""
    return reference.families(reference.scraped())


def test_the_table_of_metrics_is_what_the_program_tells(metrics):
    page = reference.METRICS.read_text()
    assert reference.metrics(page, metrics) == page, "tests/documentation/reference.py --write"
    assert len(metrics) > 25 and metrics["tigertally_overhead_seconds"]["bounds"]
    assert reference.metrics(page, {**metrics, "tigertally_x": {"help": "X.", "type": "gauge", "labels": {}, "bounds": {}}}) != page


def test_the_table_of_labels_has_every_value(metrics):
    rows = re.findall(r"^\| (`(\w+)`[^|]*) \| (.*) \|$", reference.METRICS.read_text().split("\n## Labels")[1], re.M)
    told = {}
    for _, label, values in rows:
        told.setdefault(label, set()).update(re.findall(r"`(\w+)`", values))
    seen = {}
    for one in metrics.values():
        for label, values in one["labels"].items():
            seen.setdefault(label, set()).update(values)
    assert set(seen) - set(told) == {"version", "tool"}
    codes = set(examples.EXAMPLES)
    for label in set(seen) & set(told):
        assert seen[label] - told[label] <= codes, label
        assert told[label] <= seen[label] | {"note", "would_refuse"}, label


def settings():
    """Every piece of configuration that a page shows, with where it stands."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [(f"{page.name}:{number}", text) for page in pages
            for number, text in enumerate(re.findall(r"^```toml\n(.*?)^```$", page.read_text(), re.M | re.S))]


def problems(text, folder):
    """What the program finds wrong with that configuration, but for files that are not here."""
    (folder / "shown.toml").write_text(text)
    checked = subprocess.run([binary(), "config", "check", str(folder / "shown.toml")], env=inherited(),
                             capture_output=True, text=True, check=False)
    assert (checked.returncode == 0) == (not checked.stderr), checked.stderr
    return [line for line in checked.stderr.splitlines() if "No such file" not in line]


@pytest.mark.parametrize(("place", "text"), settings())
def test_a_configuration_that_a_page_shows_can_be_used(place, text, tmp_path):
    assert problems(text, tmp_path) == [], place


def test_a_configuration_that_cannot_be_used_would_be_found(tmp_path):
    assert len(settings()) > 10
    assert problems('[guard.rules]\nunknown_tools = "note"\n', tmp_path) != []


def blocks():
    """The page's commands, each with what it shows below, if it shows anything."""
    found = []
    for kind, text in BLOCK.findall(QUICKSTART.read_text()):
        if kind == "sh":
            found.append([text, None])
        else:
            assert found[-1][1] is None, "two outputs below one command"
            found[-1][1] = text
    return found


def told(shown):
    """What an output shows, as a pattern: `…` is anything within a line."""
    return ".*?".join(re.escape(part) for part in shown.strip().split("…"))


def test_the_quick_starts_commands_print_what_it_shows(tmp_path):
    commands = blocks()
    assert len(commands) > 8 and commands[0][0] == "cargo build --release\n"
    ports = {"8090": free_port(), "9464": free_port(), "30000": free_port()}
    script = ["set -e"]
    for number, (command, _) in enumerate(commands[1:]):
        script += [f"printf '\\n=== {number}\\n'", command]
    text = "\n".join(script).replace("target/release/tigertally", binary())
    # The same page on ports of its own; both programs listen on the defaults when nothing is said.
    for port, free in ports.items():
        text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{free}")
    text = text.replace("scripted-upstream 2>", f"scripted-upstream --listen 127.0.0.1:{ports['30000']} 2>")
    env = {**inherited(), "TIGERTALLY_LISTEN": f"127.0.0.1:{ports['8090']}",
           "TIGERTALLY_ADMIN__LISTEN": f"127.0.0.1:{ports['9464']}",
           "TIGERTALLY_UPSTREAM_URL": f"http://127.0.0.1:{ports['30000']}"}
    ran = subprocess.run(["timeout", "60", "bash", "-c", text], cwd=tmp_path, env=env, capture_output=True, text=True,
                         check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    printed = re.split(r"^=== \d+\n", ran.stdout, flags=re.M)[1:]
    assert len(printed) == len(commands) - 1
    for (command, shown), got in zip(commands[1:], printed):
        if shown is not None:
            assert re.fullmatch(told(shown) + r"[^\n]*", got.strip()), f"{command}\n{got}"


def test_an_output_that_differs_is_found():
    pattern = told('{"id":"…","code":"late"…') + r"[^\n]*"
    assert re.fullmatch(pattern, '{"id":"7","code":"late","x":1}')
    assert not re.fullmatch(pattern, '{"id":"7","code":"stale","x":1}')
    assert not re.fullmatch(pattern, '{"id":"7","code":"late"}\nmore')
