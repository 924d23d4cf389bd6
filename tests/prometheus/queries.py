"""Writes every query of a Grafana dashboard as a recording rule, so that promtool can tell whether it parses."""

import json
import sys

VARIABLES = {"$__rate_interval": "5m", "$__range": "1h", "$job": ".*", "$instance": ".*"}


def main(path):
    with open(path, encoding="utf-8") as file:
        panels = json.load(file)["panels"]
    rules = []
    for panel in panels:
        for target in panel.get("targets", []):
            query = target["expr"]
            for name, value in VARIABLES.items():
                query = query.replace(name, value)
            assert "$" not in query, query
            name = f"panel{panel['id']}:{target['refId']}"
            rules.append({"record": name, "expr": query})
    assert rules, "no queries"
    # JSON is YAML.
    print(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}, indent=1))


main(sys.argv[1])
