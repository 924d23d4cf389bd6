"""The tables of keys and of metrics, as the program tells them of itself.

    python reference.py            says which page is not what the program tells
    python reference.py --write    writes the tables into docs/configuration.md and docs/metrics.md

A table stands between two comments: `<!-- generated: … -->`, which says what it lists, and `<!-- end -->`. What is
around them is written by hand.
"""

import json
import pathlib
import re
import subprocess
import sys
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from running.process import ROOT, Gateway, binary, free_port, inherited  # noqa: E402

CONFIGURATION, METRICS = ROOT / "docs/configuration.md", ROOT / "docs/metrics.md"
BLOCK = re.compile(r"(<!-- generated: ([^>]*) -->\n).*?(<!-- end -->)", re.S)
# So that `tool` has the series of a name beside those of `other`.
TOOLS = {"TIGERTALLY_TOOLS__ALLOW": "get_order_status"}


def keys():
    """Every key that the program knows: its name, default, whether it needs a restart, and what it is."""
    told = subprocess.run([binary(), "config", "keys", "--json"], env=inherited(), capture_output=True, text=True, check=True)
    return json.loads(told.stdout)


def is_under(key, what):
    return key == what or key.startswith(f"{what}.")


def table_of_keys(listed):
    rows = ["", "| key | default | what |", "| --- | --- | --- |"]
    for key in listed:
        default = key["default_in_words"] or f"`{key['default']}`"
        restart = " (*restart*)" if key["restart"] else ""
        rows.append(f"| `{key['key']}` | {default} | {key['what']}{restart} |")
    return "\n".join([*rows, "", ""])


def scraped():
    """What `/metrics` of a fresh process holds."""
    with Gateway(f"http://127.0.0.1:{free_port()}", TOOLS) as gateway:
        with urllib.request.urlopen(f"http://127.0.0.1:{gateway.admin_port}/metrics", timeout=5) as answer:
            return answer.read().decode()


def families(text):
    """The families of a scrape, in order: name, type, help, labels with their values, and the bounds of histograms."""
    found = {}
    for line in text.splitlines():
        if line.startswith("# HELP "):
            _, _, name, told = line.split(" ", 3)
            found[name] = {"help": told, "labels": {}, "bounds": {}}
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ", 3)
            found[name]["type"] = kind
        else:
            name, labels = re.match(r"(\w+)(?:\{(.*)\})? ", line).groups()
            family = next(it for it in (name, re.sub(r"_(bucket|sum|count)$", "", name)) if it in found)
            for label, value in re.findall(r'(\w+)="([^"]*)"', labels or ""):
                if label == "le":
                    found[family]["bounds"][value] = None
                else:
                    found[family]["labels"].setdefault(label, set()).add(value)
    return found


def seconds(bound):
    """A bound of a histogram, for people."""
    value = float(bound)
    for unit, size in (("h", 3600), ("min", 60), ("s", 1), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size * 0.999:
            return f"{value / size:g} {unit}"
    raise ValueError(bound)


def table_of_metrics(found):
    rows = ["", "| name | type | labels | buckets | what |", "| --- | --- | --- | --- | --- |"]
    # Ours first.
    for name in sorted(found, key=lambda name: (name.startswith("process_"), name)):
        one = found[name]
        bounds = [bound for bound in one["bounds"] if bound != "+Inf"]
        buckets = f"{len(bounds)}, {seconds(bounds[0])} to {seconds(bounds[-1])}" if bounds else ""
        labels = " ".join(f"`{label}`" for label in one["labels"])
        cells = [f"`{name}`", one["type"], labels, buckets, one["help"].rstrip(".")]
        rows.append("| " + " | ".join(cells).replace("|  |", "| |").replace("|  |", "| |") + " |")
    return "\n".join([*rows, "", ""])


def blocks(page):
    """What the page lists between its marks: what is asked for, and what stands there."""
    return [(it[2], it[0][len(it[1]):-len(it[3])]) for it in BLOCK.finditer(page)]


def with_tables(page, table):
    """The page with each table made anew by `table`, which is given what the mark asks for."""
    return BLOCK.sub(lambda it: it[1] + table(it[2].split()) + it[3], page)


def configuration(page, known):
    def table(asked):
        return table_of_keys([key for key in known if any(is_under(key["key"], what) for what in asked[1:])])
    return with_tables(page, table)


def metrics(page, found):
    return with_tables(page, lambda _: table_of_metrics(found))


def main():
    wrong = []
    for path, made in ((CONFIGURATION, lambda page: configuration(page, keys())),
                       (METRICS, lambda page: metrics(page, families(scraped())))):
        page = path.read_text()
        new = made(page)
        if "--write" in sys.argv:
            path.write_text(new)
        elif new != page:
            wrong.append(str(path.relative_to(ROOT)))
    if wrong:
        sys.exit(f"{', '.join(wrong)}: not what the program tells; tests/documentation/reference.py --write")


if __name__ == "__main__":
    main()
