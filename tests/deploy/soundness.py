"""What must hold of the objects of a deployment beyond their schemas: each rule gives what is wrong, in words.

The schemas say that a field is spelled right. That a service finds its pods, that a probe asks a port that is
there, that nothing runs as root: these are said here.
"""

KINDS_OUTSIDE_KUBERNETES = {"ServiceMonitor"}


def of(objects):
    """Everything that is wrong with these objects."""
    rules = (pods, ports, volumes, selectors, drains, monitors)
    return [wrong for rule in rules for wrong in rule(objects)]


def deployments(objects):
    return [one for one in objects if one["kind"] == "Deployment"]


def containers(deployment):
    spec = deployment["spec"]["template"]["spec"]
    return spec.get("initContainers", []) + spec["containers"]


def guard_of(deployment):
    """The container of the guard."""
    return next(one for one in containers(deployment) if one["name"] == "tigertally")


def pods(objects):
    """Kubernetes' "restricted" standard, and what a careful operator asks beyond it."""
    for deployment in deployments(objects):
        spec = deployment["spec"]["template"]["spec"]
        pod = spec.get("securityContext", {})
        if pod.get("runAsNonRoot") is not True or not pod.get("runAsUser"):
            yield "a pod may run as root"
        if pod.get("seccompProfile", {}).get("type") != "RuntimeDefault":
            yield "a pod has no seccomp profile"
        if spec.get("automountServiceAccountToken") is not False:
            yield "a pod gets a token of the cluster's API"
        if any(spec.get(key) for key in ("hostNetwork", "hostPID", "hostIPC")):
            yield "a pod shares the host's namespaces"
        for container in containers(deployment):
            yield from _container(container)


def _container(container):
    name, security = container["name"], container.get("securityContext", {})
    if security.get("allowPrivilegeEscalation") is not False:
        yield f"{name} may gain privileges"
    if security.get("readOnlyRootFilesystem") is not True:
        yield f"{name} may write to its image"
    if security.get("capabilities", {}) != {"drop": ["ALL"]}:
        yield f"{name} has capabilities"
    tag = container["image"].rpartition("/")[2].partition(":")[2]
    if tag in ("", "latest") and "@" not in container["image"]:
        yield f"{name} runs whatever image is newest"
    resources = container.get("resources", {})
    if "memory" not in resources.get("limits", {}) or "cpu" not in resources.get("requests", {}):
        yield f"{name} has no bound on its memory, or asks for no processor"
    if name == "tigertally":
        for probe, path in (("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
            if path != _asked(container.get(probe, {})):
                yield f"{name}: {probe} does not ask {path}"


def _asked(probe):
    """The path of the admin port that a probe asks, by the kubelet or by the program in the container."""
    command = probe.get("exec", {}).get("command", [])
    if command[1:2] == ["health"]:
        return "/livez" if "--live" in command else "/readyz"
    return probe.get("httpGet", {}).get("path")


def ports(objects):
    """Every port that is named somewhere is a port of the container."""
    for deployment in deployments(objects):
        for container in containers(deployment):
            known = {port["name"] for port in container.get("ports", [])}
            asked = {probe["httpGet"]["port"] for name, probe in container.items()
                     if name.endswith("Probe") and "httpGet" in probe}
            for name in asked - known:
                yield f"a probe asks the port {name}, which is none"
        known = {port["name"] for container in containers(deployment) for port in container.get("ports", [])}
        for service in (one for one in objects if one["kind"] == "Service"):
            for port in service["spec"]["ports"]:
                if port["targetPort"] not in known:
                    yield f"a service leads to the port {port['targetPort']}, which is none"
        for policy in (one for one in objects if one["kind"] == "NetworkPolicy"):
            for rule in policy["spec"].get("ingress", []):
                for port in rule.get("ports", []):
                    if port["port"] not in known:
                        yield f"a network policy opens the port {port['port']}, which is none"


def volumes(objects):
    """Every mount has its volume and every volume its mount; what is named of ours exists."""
    made = {(one["kind"], one["metadata"]["name"]) for one in objects}
    for deployment in deployments(objects):
        spec = deployment["spec"]["template"]["spec"]
        there = {volume["name"] for volume in spec.get("volumes", [])}
        mounted = {mount["name"] for container in containers(deployment)
                   for mount in container.get("volumeMounts", [])}
        for name in there ^ mounted:
            yield f"the volume {name} and its mount are not both there"
        for volume in spec.get("volumes", []):
            sources = [volume, *volume.get("projected", {}).get("sources", [])]
            for source in sources:
                if "configMap" in source and ("ConfigMap", source["configMap"]["name"]) not in made:
                    yield f"the ConfigMap {source['configMap']['name']} is not made"
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            if claim and ("PersistentVolumeClaim", claim) not in made:
                yield f"the claim {claim} is not made"


def selectors(objects):
    """Whatever selects pods selects the deployment's, and whatever names it names it right."""
    for deployment in deployments(objects):
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        for one in objects:
            spec = one.get("spec", {})
            wanted = {
                "Deployment": lambda spec=spec: spec["selector"]["matchLabels"],
                "Service": lambda spec=spec: spec["selector"],
                "PodDisruptionBudget": lambda spec=spec: spec["selector"]["matchLabels"],
                "NetworkPolicy": lambda spec=spec: spec["podSelector"]["matchLabels"],
            }.get(one["kind"], dict)()
            if not wanted.items() <= labels.items():
                yield f"{one['kind']} {one['metadata']['name']} selects other pods"
            target = spec.get("scaleTargetRef", {}).get("name", deployment["metadata"]["name"])
            if target != deployment["metadata"]["name"]:
                yield f"the autoscaler scales {target}, which is not there"


def drains(objects):
    """The kubelet waits longer than the pause before the end and the drain together."""
    for deployment in deployments(objects):
        guard = guard_of(deployment)
        variables = {variable["name"]: variable.get("value") for variable in guard["env"]}
        drain = int(variables.get("TIGERTALLY_LIMITS__DRAIN_TIMEOUT", "30s").removesuffix("s"))
        pause = guard.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        grace = deployment["spec"]["template"]["spec"].get("terminationGracePeriodSeconds", 30)
        if grace <= drain + pause:
            yield f"{grace} s of grace do not cover a drain of {drain} s and a pause of {pause} s"


def monitors(objects):
    """A ServiceMonitor finds one service of ours, its port, and calls the job what the alert rules look for."""
    for monitor in (one for one in objects if one["kind"] == "ServiceMonitor"):
        wanted = monitor["spec"]["selector"]["matchLabels"]
        found = [one for one in objects if one["kind"] == "Service"
                 and wanted.items() <= one["metadata"]["labels"].items()]
        if len(found) != 1:
            yield f"the monitor finds {len(found)} services"
            continue
        names = {port["name"] for port in found[0]["spec"]["ports"]}
        for endpoint in monitor["spec"]["endpoints"]:
            known = {"port", "path", "interval", "authorization", "relabelings"}
            if set(endpoint) - known or endpoint["port"] not in names or endpoint["path"] != "/metrics":
                yield "the monitor scrapes what is not there"
            if not endpoint.get("authorization", {}).get("credentials", {}).get("key"):
                yield "the monitor shows no token"
            if {"targetLabel": "job", "replacement": "tigertally"} not in endpoint["relabelings"]:
                yield "the monitor's job has not the name that the alert rules look for"
