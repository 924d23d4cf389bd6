"""The chart and the manifests: Helm takes them, Kubernetes' schemas do, and they hold together."""

import copy

import helm_python as helm
import kubernetes_validate
import pytest

import rendering
import soundness

OLDEST, NEWEST = "1.30", "1.37"
EXAMPLES = {
    "trial": lambda: rendering.objects(rendering.values("trial")),
    "fleet": lambda: rendering.objects(rendering.values("fleet")),
    "fleet.yaml": lambda: rendering.read(rendering.FLEET),
    "sidecar.yaml": lambda: rendering.read(rendering.SIDECAR),
}
FLEET = rendering.values("fleet")
TRIAL = rendering.values("trial")


@pytest.mark.parametrize("name", ["trial", "fleet"])
def test_helm_lints_the_chart(name):
    report = helm.lint(rendering.CHART, rendering.values(name), strict=True, kube_version=f"v{OLDEST}.0")
    assert report["errors"] == []
    assert [one for one in report["messages"] if one["severity"] > 1] == []


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("name", EXAMPLES)
def test_kubernetes_knows_every_field(name, version):
    objects = EXAMPLES[name]()
    checked = 0
    for one in objects:
        if one["kind"] not in soundness.KINDS_OUTSIDE_KUBERNETES:
            kubernetes_validate.validate(one, version, strict=True)
            checked += 1
    assert checked >= 2


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_objects_hold_together(name):
    assert soundness.of(EXAMPLES[name]()) == []


def test_the_plain_manifests_are_the_chart():
    assert rendering.FLEET.read_text() == rendering.fleet(), "tests/deploy/rendering.py --write"


def kinds(given):
    return sorted(one["kind"] for one in rendering.objects(given))


def test_each_setting_makes_its_objects():
    always = ["ConfigMap", "Deployment", "NetworkPolicy", "Service", "Service"]
    assert kinds(TRIAL) == sorted([*always, "PersistentVolumeClaim"])
    assert kinds(FLEET) == sorted([*always, "HorizontalPodAutoscaler", "PodDisruptionBudget", "ServiceMonitor"])
    claimed = rendering.with_values(TRIAL, persistence__existingClaim="mine", networkPolicy__enabled=False)
    assert kinds(claimed) == ["ConfigMap", "Deployment", "Service", "Service"]


def test_two_processes_never_open_one_directory():
    [deployment] = soundness.deployments(rendering.objects(TRIAL))
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    [deployment] = soundness.deployments(rendering.objects(FLEET))
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}


def test_no_secret_stands_in_what_is_rendered():
    for one in rendering.objects(FLEET):
        assert one["kind"] != "Secret"
    [deployment] = soundness.deployments(rendering.objects(FLEET))
    variables = {variable["name"]: variable for variable in soundness.guard_of(deployment)["env"]}
    for name in ("TIGERTALLY_ADMIN__TOKEN", "TIGERTALLY_STORE__URL"):
        assert "value" not in variables[name] and variables[name]["valueFrom"]["secretKeyRef"]


@pytest.mark.parametrize(("base", "changes", "words"), [
    (TRIAL, {"replicas": 2}, "set store.kind = redis"),
    (TRIAL, {"autoscaling": {"enabled": True}}, "set store.kind = redis"),
    (TRIAL, {"auth": {"insecure": False}}, "auth.insecure = true"),
    (TRIAL, {"auth": {"mode": "keys"}}, "keys.toml"),
    (TRIAL, {"admin": {"existingSecret": ""}}, "admin.existingSecret"),
    (TRIAL, {"image": {"repository": ""}}, "image.repository"),
    (FLEET, {"store": {"kind": "redis", "existingSecret": ""}}, "store.existingSecret"),
    (TRIAL, {"profil": "observe"}, "profil"),
    (TRIAL, {"profile": "lax"}, "profile"),
    (TRIAL, {"replicas": "two"}, "replicas"),
    (TRIAL, {"upstream": {"url": "sglang:30000"}}, "url"),
    (TRIAL, {"image": {"repository": "r", "digest": "sha256:1"}}, "digest"),
    (TRIAL, {"auth": {"insecure": "yes"}}, "insecure"),
    (TRIAL, {"drainSeconds": 0}, "drainSeconds"),
])
def test_values_that_would_go_wrong_are_refused(base, changes, words):
    with pytest.raises(helm.HelmError) as refused:
        rendering.objects(rendering.with_values(base, **changes))
    assert words.lower() in str(refused.value).lower()


def guard(objects):
    return soundness.guard_of(soundness.deployments(objects)[0])


def one(objects, kind):
    return next(it for it in objects if it["kind"] == kind)


def spec(objects):
    return soundness.deployments(objects)[0]["spec"]["template"]["spec"]


@pytest.mark.parametrize(("plant", "words"), [
    (lambda it: spec(it)["securityContext"].pop("runAsNonRoot"), "root"),
    (lambda it: spec(it)["securityContext"].pop("seccompProfile"), "seccomp"),
    (lambda it: spec(it).pop("automountServiceAccountToken"), "token of the cluster"),
    (lambda it: spec(it).update(hostNetwork=True), "host's namespaces"),
    (lambda it: guard(it)["securityContext"].update(readOnlyRootFilesystem=False), "write to its image"),
    (lambda it: guard(it)["securityContext"].update(allowPrivilegeEscalation=True), "gain privileges"),
    (lambda it: guard(it)["securityContext"]["capabilities"].update(add=["NET_ADMIN"]), "capabilities"),
    (lambda it: guard(it).update(image="registry.example/tigertally"), "newest"),
    (lambda it: guard(it)["resources"].pop("limits"), "bound on its memory"),
    (lambda it: guard(it)["livenessProbe"]["httpGet"].update(path="/readyz"), "does not ask /livez"),
    (lambda it: guard(it)["readinessProbe"]["httpGet"].update(port="metrics"), "a probe asks"),
    (lambda it: one(it, "Service")["spec"]["ports"][0].update(targetPort="web"), "a service leads"),
    (lambda it: one(it, "NetworkPolicy")["spec"]["ingress"][0]["ports"][0].update(port="web"), "opens the port"),
    (lambda it: guard(it)["volumeMounts"].pop(), "volume"),
    (lambda it: one(it, "ConfigMap")["metadata"].update(name="other"), "is not made"),
    (lambda it: one(it, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"].update(x="y"), "selects other"),
    (lambda it: one(it, "HorizontalPodAutoscaler")["spec"]["scaleTargetRef"].update(name="x"), "autoscaler"),
    (lambda it: spec(it).update(terminationGracePeriodSeconds=30), "grace"),
    (lambda it: one(it, "ServiceMonitor")["spec"]["selector"]["matchLabels"].update(x="y"), "finds 0"),
    (lambda it: one(it, "ServiceMonitor")["spec"]["endpoints"][0].pop("authorization"), "no token"),
    (lambda it: one(it, "ServiceMonitor")["spec"]["endpoints"][0].update(relabelings=[]), "alert rules"),
])
def test_a_planted_mistake_is_found(plant, words):
    objects = copy.deepcopy(rendering.objects(FLEET))
    assert soundness.of(objects) == []
    plant(objects)
    assert any(words in wrong for wrong in soundness.of(objects)), soundness.of(objects)


@pytest.mark.parametrize("plant", [
    lambda it: spec(it).update(terminationGraceSeconds=45),
    lambda it: guard(it)["readinessProbe"].update(period=5),
    lambda it: guard(it)["lifecycle"]["preStop"]["sleep"].update(seconds="5 s"),
    lambda it: one(it, "PodDisruptionBudget")["spec"].update(maxUnavailable=[1]),
])
def test_a_field_that_is_misspelled_is_found(plant):
    objects = copy.deepcopy(rendering.objects(FLEET))
    plant(objects)
    with pytest.raises(kubernetes_validate.ValidationError):
        for it in objects:
            if it["kind"] not in soundness.KINDS_OUTSIDE_KUBERNETES:
                kubernetes_validate.validate(it, OLDEST, strict=True)
