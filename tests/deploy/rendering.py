"""What is deployed, as data: the chart rendered by Helm's own engine, the manifests, the unit.

    python rendering.py            compares config/kubernetes/fleet.yaml with the chart
    python rendering.py --write    writes it
"""

import pathlib
import sys

import helm_python as helm
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "config/helm/tigertally"
FLEET = ROOT / "config/kubernetes/fleet.yaml"
SIDECAR = ROOT / "config/kubernetes/sidecar.yaml"
HEAD = """\
# Replicas before one Redis, without Helm. Do not edit: this is the chart (config/helm/tigertally) with the values
# of its ci/fleet.yaml, written by `tests/deploy/rendering.py --write`. docs/deploy.md, "Fleet", has the secrets that it names.
"""


def values(name):
    """The values of one of the chart's examples."""
    return yaml.safe_load((CHART / "ci" / f"{name}.yaml").read_text())


def with_values(base, **changes):
    """`base` with these changes; a double underscore stands for a step inwards."""
    changed = yaml.safe_load(yaml.safe_dump(base))
    for path, value in changes.items():
        *way, last = path.split("__")
        place = changed
        for step in way:
            place = place.setdefault(step, {})
        place[last] = value
    return changed


def texts(given):
    """The chart's files with these values, as Helm writes them, by their paths."""
    with helm.Chart.load(CHART) as chart:
        chart.validate_schema(given)
        return chart.render(given, name="tigertally", namespace="guard")


def objects(given):
    """The objects that the chart makes of these values."""
    files = texts(given)
    return [one for path in sorted(files) if path.endswith(".yaml")
            for one in yaml.safe_load_all(files[path]) if one]


def read(path):
    """The objects of a file of manifests."""
    return [one for one in yaml.safe_load_all(path.read_text()) if one]


def fleet():
    """The text of the plain manifests: the chart's, without what says that Helm keeps them."""
    files = texts(values("fleet"))
    parts = [files[path].strip() for path in sorted(files) if path.endswith(".yaml")]
    lines = "\n---\n".join(part for part in parts if part).splitlines()
    ours = [line for line in lines if "helm.sh/" not in line and "managed-by: Helm" not in line]
    return HEAD + "\n".join(ours) + "\n"


if __name__ == "__main__":
    if "--write" in sys.argv:
        FLEET.write_text(fleet())
    elif FLEET.read_text() != fleet():
        sys.exit(f"{FLEET.relative_to(ROOT)} is not what the chart gives: tests/deploy/rendering.py --write")
