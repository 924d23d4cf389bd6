"""The image, the compose file and the unit: their linters take them, and planted mistakes are found."""

import pathlib
import re
import shutil
import subprocess
import sysconfig
import tomllib

import pytest
import yaml

import rendering

SCRIPTS = pathlib.Path(sysconfig.get_path("scripts"))
COMPOSE = (rendering.ROOT / "docker-compose.yml").read_text()
IMAGE = (rendering.ROOT / "Dockerfile").read_text()
UNIT = (rendering.ROOT / "config/systemd/tigertally.service").read_text()
# What systemd thinks of the unit's exposure, from 0 (none) to 10.
MOST_EXPOSED = 2.0


def hadolint(text):
    """What is wrong with a Dockerfile."""
    return subprocess.run([SCRIPTS / "hadolint", "--failure-threshold", "warning", "-"], input=text,
                          capture_output=True, text=True, check=False)


def test_the_image_is_well_made():
    linted = hadolint(IMAGE)
    assert linted.returncode == 0, linted.stdout
    last = IMAGE.split("\nFROM ")[-1]
    assert last.startswith("gcr.io/distroless/") and "\nUSER 65532:65532\n" in last
    assert "\nRUN " not in last, "there is no shell in it"
    copied = re.findall(r"^COPY .*?(\S+)$", last, re.M)
    assert copied == ["/usr/local/bin/tigertally", "/var/lib/tigertally"], "nothing else that could be run"
    assert "--platform=$BUILDPLATFORM" in IMAGE and "TARGETARCH" in IMAGE


def test_the_image_is_built_by_the_compiler_that_the_manifest_names_and_bears_its_list_of_crates():
    wanted = tomllib.loads(MANIFEST)["package"]["rust-version"]
    assert f"\nFROM --platform=$BUILDPLATFORM rust:{wanted}-bookworm AS build\n" in IMAGE
    builds = re.findall(r"cargo (?:auditable )?build[^;]*", IMAGE)
    assert builds and set(builds) == {"cargo auditable build --locked --release"}


@pytest.mark.parametrize(("sound", "mistake"), [
    ("rust:1.95-bookworm", "rust:latest"),
    ("WORKDIR /src", "WORKDIR src"),
    ('CMD ["serve"]', "CMD serve"),
])
def test_a_mistake_in_the_image_is_found(sound, mistake):
    assert sound in IMAGE
    assert hadolint(IMAGE.replace(sound, mistake)).returncode != 0


def missing(image, ignored, manifest):
    """What the program is built of and the image's builder does not have: targets of Cargo.toml, included files."""
    sent = {line[1:] for line in ignored.splitlines() if line.startswith("!")}
    copied = {name for line in re.findall(r"^COPY (?!--from)(.*) \S+$", image, re.M) for name in line.split()}
    def is_there(path):
        top = path.relative_to(rendering.ROOT).parts[0]
        return path.exists() and top in sent and top in copied
    for kind in ("bench", "test", "example"):
        for target in tomllib.loads(manifest).get(kind, []):
            stem = rendering.ROOT / {"bench": "benches", "test": "tests", "example": "examples"}[kind] / target["name"]
            places = [rendering.ROOT / target["path"]] if "path" in target else [stem.with_suffix(".rs"), stem / "main.rs"]
            if not any(is_there(place) for place in places):
                yield f"{kind} {target['name']}"
    for source in sorted((rendering.ROOT / "src").rglob("*.rs")):
        if "tests" in source.relative_to(rendering.ROOT).with_suffix("").parts:
            continue
        built = source.read_text().split("#[cfg(test)]")[0]
        for name in re.findall(r'include_(?:str|bytes)!\(\s*"([^"]+)"', built):
            if not is_there((source.parent / name).resolve()):
                yield f"{source.name}: {name}"


MANIFEST = (rendering.ROOT / "Cargo.toml").read_text()
IGNORED = (rendering.ROOT / ".dockerignore").read_text()


def test_the_image_is_built_of_all_that_the_program_needs():
    assert list(missing(IMAGE, IGNORED, MANIFEST)) == []
    assert list(missing(IMAGE.replace("COPY benches benches\n", ""), IGNORED, MANIFEST))
    assert list(missing(IMAGE.replace("COPY config config\n", ""), IGNORED, MANIFEST))
    assert list(missing(IMAGE, IGNORED.replace("!config\n", ""), MANIFEST))
    assert list(missing(IMAGE, IGNORED, MANIFEST + '\n[[test]]\nname = "x"\npath = "tests/x.rs"\n')) == ["test x"]


def fits(schema, path):
    """Whether a file fits one of the schemas that check-jsonschema brings along."""
    checked = subprocess.run([SCRIPTS / "check-jsonschema", "--builtin-schema", f"vendor.{schema}", path],
                             capture_output=True, text=True, check=False)
    return checked.returncode == 0


def composed(text, tmp_path):
    """The compose file, if it can be read, and is as a trial on one machine should be."""
    path = tmp_path / "docker-compose.yml"
    path.write_text(text)
    assert fits("compose-spec", path)
    read = yaml.safe_load(text)
    services = read["services"]
    for name, service in services.items():
        tag = service["image"].rpartition(":")[2]
        assert tag[0] in "v0123456789", f"{name} runs whatever is newest"
        assert "healthcheck" in service or name == "tigertally", f"{name}: nobody looks after it"
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), f"{name} can be reached from elsewhere"
        for other, how in service.get("depends_on", {}).items():
            optional = how.get("required") is False
            assert bool(services[other].get("profiles")) <= optional, f"{name} waits for {other}"
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            there = (rendering.ROOT / source).exists() if source[0] == "." else source in read["volumes"]
            assert there, f"no {source}"
    return services


def test_the_compose_file_is_well_made(tmp_path):
    services = composed(COMPOSE, tmp_path)
    assert services["sglang"]["profiles"] == ["gpu"] and services["redis"]["profiles"] == ["redis"]
    assert {"tigertally", "scripted", "prometheus", "grafana"} == {
        name for name, service in services.items() if "profiles" not in service}


@pytest.mark.parametrize(("sound", "mistake"), [
    ("read_only: true", "readonly: true"),
    ("condition: service_healthy", "condition: healthy"),
    ("timeout: 3s", "timeouts: 3s"),
    ('"127.0.0.1:8090:8090"', '"8090:8090"'),
    ("        required: false # only with its profile\n", ""),
    ("redis:7.4-alpine", "redis:latest"),
    ("./config/prometheus/alerts.yml", "./config/prometheus/alarms.yml"),
    ("\n  conversations:\n", "\n  others:\n"),
])
def test_a_mistake_in_the_compose_file_is_found(sound, mistake, tmp_path):
    assert sound in COMPOSE
    with pytest.raises(AssertionError):
        composed(COMPOSE.replace(sound, mistake, 1), tmp_path)


FORMS = rendering.ROOT / ".github/ISSUE_TEMPLATE"


@pytest.mark.parametrize("form", ["bug", "false_alarm", "missed_fault", "feature"])
def test_an_issue_form_is_one_and_asks_for_no_content(form):
    assert fits("github-issue-forms", FORMS / f"{form}.yml")
    body = yaml.safe_load((FORMS / f"{form}.yml").read_text())["body"]
    [promise] = [one for one in body if one.get("id") == "clean"]
    assert promise["attributes"]["options"][0]["required"] is True
    assert "arguments, results, keys or tokens" in (FORMS / f"{form}.yml").read_text()


def test_the_choice_of_forms_is_one_and_a_mistake_in_a_form_is_found(tmp_path):
    assert fits("github-issue-config", FORMS / "config.yml")
    form = (FORMS / "bug.yml").read_text()
    path = tmp_path / "bug.yml"
    path.write_text(form.replace("type: textarea", "type: textbox", 1))
    assert not fits("github-issue-forms", path)


def verified(text, tmp_path):
    """What `systemd-analyze` thinks of a unit: whether it is well-formed, and its exposure."""
    # A program that is on every machine stands in for ours.
    unit = tmp_path / "tigertally.service"
    unit.write_text(text.replace("/usr/local/bin/tigertally", "/bin/true"))
    checked = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    judged = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager", unit],
                            capture_output=True, text=True, check=False)
    exposure = float(judged.stdout.rpartition("tigertally.service: ")[2].split()[0])
    return checked.returncode == 0 and not checked.stderr.strip(), exposure


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze here")
def test_the_unit_is_well_made(tmp_path):
    sound, exposure = verified(UNIT, tmp_path)
    assert sound and exposure <= MOST_EXPOSED
    sound, _ = verified(UNIT.replace("ProtectSystem=strict", "ProtectSystem=strictly"), tmp_path)
    assert not sound
    _, exposure = verified(UNIT.replace("CapabilityBoundingSet=\n", ""), tmp_path)
    assert exposure > MOST_EXPOSED


def test_every_yaml_file_is_tidy():
    rules = "{extends: default, rules: {line-length: disable, document-start: disable, " \
            "braces: {max-spaces-inside: 1}, truthy: {check-keys: false}, comments: {min-spaces-from-content: 1}}}"
    ours = [path for pattern in ("docker-compose.yml", "config/**/*.yml", "config/**/*.yaml", ".github/**/*.yml")
            for path in sorted(rendering.ROOT.glob(pattern)) if "templates" not in path.parts]
    assert len(ours) > 6
    linted = subprocess.run([SCRIPTS / "yamllint", "--strict", "-d", rules, *ours], capture_output=True, text=True, check=False)
    assert linted.returncode == 0, linted.stdout
