"""The program takes what the chart, the manifests, the compose file and the unit give it, and answers as they ask."""

import contextlib
import json
import re
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest
import yaml

import rendering
import soundness
from running.process import Process, ScriptedUpstream, binary, free_port, inherited

TOKEN = "token-of-the-test"
SECRETS = {
    ("tigertally-admin", "token"): TOKEN,
    ("tigertally-redis", "url"): "redis://127.0.0.1:6379",
    ("tigertally-redis", "digest-key"): "00" * 32,
    ("tigertally-keys", "keys.toml"): "",
}


def laid_out(objects, folder, secrets=SECRETS):
    """The guard's files in `folder` and its environment, as a kubelet would lay them out."""
    deployment = soundness.deployments(objects)[0]
    container = soundness.guard_of(deployment)
    maps = {one["metadata"]["name"]: one["data"] for one in objects if one["kind"] == "ConfigMap"}
    volumes = {one["name"]: one for one in deployment["spec"]["template"]["spec"]["volumes"]}
    places = {}
    for mount in container["volumeMounts"]:
        place = places[mount["mountPath"]] = folder / mount["name"]
        place.mkdir()
        volume = volumes[mount["name"]]
        for source in [volume, *volume.get("projected", {}).get("sources", [])]:
            for name, text in maps.get(source.get("configMap", {}).get("name"), {}).items():
                (place / name).write_text(text)
            for item in source.get("secret", {}).get("items", []):
                (place / item["path"]).write_text(secrets[source["secret"]["name"], item["key"]])

    def here(text):
        for path, place in places.items():
            text = text.replace(path, str(place))
        return text

    env = {}
    for variable in container["env"]:
        secret = variable.get("valueFrom", {}).get("secretKeyRef")
        env[variable["name"]] = secrets[secret["name"], secret["key"]] if secret else here(variable["value"])
    return env, [here(argument) for argument in container["args"]]


def check(env, file):
    asked = [binary(), "config", "check", str(file)]
    return subprocess.run(asked, env={**inherited(), **env}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["trial", "fleet", "fleet.yaml", "sidecar.yaml"])
def test_the_settings_can_be_used(name, tmp_path):
    if name.endswith(".yaml"):
        objects = rendering.read(rendering.ROOT / "config/kubernetes" / name)
    else:
        objects = rendering.objects(rendering.values(name))
    env, args = laid_out(objects, tmp_path)
    checked = check(env, args[-1])
    assert checked.returncode == 0, checked.stderr
    # Nobody can be let in by a setting that was not meant to.
    assert ("insecure = true" in checked.stdout) == (name == "trial"), checked.stdout


def test_a_setting_that_the_program_does_not_know_is_found(tmp_path):
    given = rendering.with_values(rendering.values("trial"), config='[telemetry]\nrecord_files = "-"\n')
    env, args = laid_out(rendering.objects(given), tmp_path)
    checked = check(env, args[-1])
    assert checked.returncode == 2
    assert "record_files" in checked.stderr + checked.stdout


def asked(url, token=None, host="10.0.0.7:9464"):
    """The status that a kubelet or Prometheus gets, which come by the pod's address."""
    request = urllib.request.Request(url, headers={"host": host})
    if token:
        request.add_header("authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_the_probes_and_prometheus_are_answered(tmp_path):
    env, args = laid_out(rendering.objects(rendering.values("trial")), tmp_path)
    with ScriptedUpstream() as upstream:
        client, admin = free_port(), free_port()
        env |= {"TIGERTALLY_LISTEN": f"0.0.0.0:{client}", "TIGERTALLY_ADMIN__LISTEN": f"0.0.0.0:{admin}",
                "TIGERTALLY_UPSTREAM_URL": f"http://127.0.0.1:{upstream.port}"}
        base = f"http://127.0.0.1:{admin}"
        with Process([binary(), *args], f"{base}/livez", env):
            assert asked(f"{base}/livez") == 200
            assert asked(f"{base}/readyz") == 200
            assert asked(f"{base}/metrics") == 401
            assert asked(f"{base}/metrics", token="another") == 401
            assert asked(f"{base}/metrics", token=TOKEN) == 200
            assert asked(f"http://127.0.0.1:{client}/health", host="tigertally.guard:8090") == 200
            upstream.stop()
            # Without its upstream it is alive and not ready.
            wait_until(lambda: asked(f"{base}/readyz") == 503)
            assert asked(f"{base}/livez") == 200


def health(*words, **env):
    """What `tigertally health` says, and its exit code."""
    told = subprocess.run([binary(), "health", *words], env={**inherited(), **env}, capture_output=True, text=True,
                          check=False)
    return told.returncode, told.stdout, told.stderr


def test_health_is_said_by_the_exit_code_and_in_a_line():
    with ScriptedUpstream() as upstream:
        client, admin = free_port(), free_port()
        env = {"TIGERTALLY_LISTEN": f"127.0.0.1:{client}", "TIGERTALLY_ADMIN__LISTEN": f"0.0.0.0:{admin}",
               "TIGERTALLY_ADMIN__TOKEN": TOKEN, "TIGERTALLY_STORE__KIND": "memory",
               "TIGERTALLY_UPSTREAM_URL": f"http://127.0.0.1:{upstream.port}"}
        here = f"127.0.0.1:{admin}"
        asked_for = [(), ("--live",), ("--admin-listen", here), (f"http://127.0.0.1:{client}/health",)]
        for words in asked_for:
            code, out, err = health(*words, TIGERTALLY_ADMIN__LISTEN=here)
            assert (code, out) == (1, "") and "does not answer: Connection refused" in err, err
        with Process([binary(), "serve"], f"http://{here}/livez", env):
            for words in asked_for:
                # As the container's environment says it, and a proxy for what is outside is none of its business.
                code, out, err = health(*words, **env, http_proxy="http://127.0.0.1:1")
                assert (code, err) == (0, "") and " answers 200" in out, err
            assert health("--live", **env)[1] == f"http://{here}/livez answers 200: ok\n"
            code, out, err = health(f"http://{here}/metrics", **env)
            assert (code, out) == (1, "") and "answers 401" in err
            upstream.stop()
            wait_until(lambda: health(**env)[0] == 1)
            assert '"upstream":false' in health(**env)[2]
            assert health("--live", **env)[0] == 0
    assert health("--live", "http://127.0.0.1/livez")[0] == 2


def test_a_port_that_never_answers_is_not_waited_for():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        code, _, err = health("--timeout", "200ms", f"http://127.0.0.1:{silent.getsockname()[1]}/")
    assert code == 1 and err.endswith("does not answer within 200 ms\n")


def test_the_health_checks_are_ones_that_the_program_knows():
    image = (rendering.ROOT / "Dockerfile").read_text()
    compose = yaml.safe_load((rendering.ROOT / "docker-compose.yml").read_text())["services"]
    [sidecar] = soundness.deployments(rendering.read(rendering.SIDECAR))
    guard = soundness.guard_of(sidecar)
    commands = [json.loads(re.search(r"^ +CMD (\[.*\])$", image, re.M)[1]),
                compose["scripted"]["healthcheck"]["test"][1:],
                *(guard[probe]["exec"]["command"] for probe in ("startupProbe", "livenessProbe", "readinessProbe"))]
    for program, verb, *words in commands:
        assert (program, verb) == ("/usr/local/bin/tigertally", "health")
        # Nobody is there: 1, and not the 2 of flags that cannot be used.
        assert health(*words, TIGERTALLY_ADMIN__LISTEN=f"127.0.0.1:{free_port()}")[0] == 1, words


def wait_until(holds, seconds=20):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.05)


@contextlib.contextmanager
def redis_server(folder):
    """A server as docs/redis.md wants it; gives its URL."""
    port = free_port()
    argv = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder),
            "--maxmemory-policy", "noeviction"]
    child = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: answers(port))
        yield f"redis://127.0.0.1:{port}"
    finally:
        child.terminate()
        child.wait(10)


def answers(port):
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def chat(port, key, messages):
    """Asks in generation 1 of `chat-17`; the status, and the answer's message or the refusal's code."""
    body = {"model": "scripted", "messages": messages, "tools": [
        {"type": "function", "function": {"name": "get_order_status", "parameters": {"type": "object"}}}]}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(body).encode(), {
        "content-type": "application/json", "authorization": f"Bearer {key}",
        "x-conversation-id": "chat-17", "x-generation": "1"})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.load(answer)["choices"][0]["message"]
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["error"]["code"]


def test_two_replicas_of_the_fleet_decide_as_one(tmp_path):
    keys = tmp_path / "keys.toml"
    made = subprocess.run([binary(), "keys", "add", "--file", keys, "--name", "agent"],
                          capture_output=True, text=True, check=True)
    key = made.stdout.strip()
    with contextlib.ExitStack() as running:
        secrets = {**SECRETS, ("tigertally-redis", "url"): running.enter_context(redis_server(tmp_path)),
                   ("tigertally-keys", "keys.toml"): keys.read_text()}
        upstream = running.enter_context(ScriptedUpstream())
        ports = []
        for name in ("one", "other"):
            (tmp_path / name).mkdir()
            env, args = laid_out(rendering.objects(rendering.values("fleet")), tmp_path / name, secrets)
            port, admin = free_port(), free_port()
            env |= {"TIGERTALLY_LISTEN": f"0.0.0.0:{port}", "TIGERTALLY_ADMIN__LISTEN": f"0.0.0.0:{admin}",
                    "TIGERTALLY_UPSTREAM_URL": f"http://127.0.0.1:{upstream.port}"}
            running.enter_context(Process([binary(), *args], f"http://127.0.0.1:{admin}/readyz", env))
            ports.append(port)
        one, other = ports
        asked_for = [{"role": "user", "content": "Where is ORDER-A?"}]
        assert chat(one, "tt_none", asked_for)[0] == 401
        status, proposal = chat(one, key, asked_for)
        assert status == 200
        result = {"role": "tool", "tool_call_id": proposal["tool_calls"][0]["id"],
                  "content": '{"order_id":"ORDER-A","status":"in transit"}'}
        whole = [*asked_for, proposal, result]
        status, answer = chat(other, key, whole)
        assert (status, answer["content"]) == (200, "ORDER-A is in transit.")
        assert chat(one, key, whole) == (422, "duplicate")


def test_the_compose_file_sets_what_the_program_knows(tmp_path):
    services = yaml.safe_load((rendering.ROOT / "docker-compose.yml").read_text())["services"]
    image = dict(re.findall(r"(TIGERTALLY_\w+)=(\S+)", (rendering.ROOT / "Dockerfile").read_text()))
    for store in ("embedded", "redis"):
        chosen = {"STORE": store}
        env = {**image, **{name: resolved(value, chosen)
                           for name, value in services["tigertally"]["environment"].items()}}
        file = tmp_path / "none.toml"
        file.write_text("")
        checked = check(env, file)
        assert checked.returncode == 0, checked.stderr
        assert f'kind = "{store}"' in checked.stdout


def resolved(value, chosen):
    """A value as compose reads it: ${NAME:-default}."""
    return re.sub(r"\$\{(\w+):-([^}]*)\}", lambda it: chosen.get(it[1], it[2]), value)


def test_the_unit_starts_what_is_there():
    text = (rendering.ROOT / "config/systemd/tigertally.service").read_text()
    commands = re.findall(r"^Exec(?:Start|StartPre)=/usr/local/bin/(.*)$", text, re.M)
    assert len(commands) == 2
    for command in commands:
        words = [word for word in command.split()[1:] if word != "/etc/tigertally/tigertally.toml"]
        told = subprocess.run([binary(), *(word for word in words if word != "--config"), "--help"],
                              capture_output=True, text=True, check=False)
        assert told.returncode == 0 and re.search(rf"Usage: \S+ {words[0]}", told.stdout), told.stdout


def test_the_file_that_the_unit_says_to_install_can_be_used():
    assert check({}, rendering.ROOT / "config/order-query.toml").returncode == 0
