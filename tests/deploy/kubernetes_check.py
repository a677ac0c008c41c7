"""Checks deploy/kubernetes: every overlay as kubectl renders it, against the schemas of Kubernetes and our own rules."""

import functools
import os

import kubernetes_validate
import yaml

from facts import ROOT, fetch, number, running, text_of
from prometheus_check import load, queries_of
from queries import SCRAPED

FOLDER = os.path.join(ROOT, "deploy/kubernetes")
# The oldest and the newest release that the manifests are for.
RELEASES = ("1.29", "1.36")
# Kinds of the Prometheus operator, which are in no schema of Kubernetes; promtool looks at the rules.
OPERATOR_KINDS = {"ServiceMonitor", "PrometheusRule"}
# Made by hand, with commands of deploy/README.md.
SECRETS = {"normd-store", "normd-tls", "normd-tokens"}


def check(programs, kubectl):
    for overlay in sorted(os.listdir(f"{FOLDER}/overlays")):
        objects = render(kubectl, overlay)
        for problem in (*schema_problems(objects), *Objects(objects).problems(programs)):
            yield f"overlays/{overlay}: {problem}"
        print(f"  overlays/{overlay}: {len(objects)} objects")
    yield from image_problems()
    yield from adapter_problems(programs)


def render(kubectl, overlay):
    return list(yaml.safe_load_all(text_of(kubectl, "kustomize", f"{FOLDER}/overlays/{overlay}")))


def schema_problems(objects):
    for found in objects:
        if found["kind"] in OPERATOR_KINDS:
            continue
        for release in RELEASES:
            try:
                kubernetes_validate.validate(found, release, strict=True)
            except kubernetes_validate.ValidationError as error:
                yield f"{found['kind']} {found['metadata']['name']} at {release}: {error.message}"


def image_problems():
    """Only `images:` of an overlay names where an image comes from."""
    for folder, _, files in os.walk(FOLDER):
        for name in files:
            with open(os.path.join(folder, name), encoding="utf-8") as lines:
                for line in lines:
                    if line.strip().startswith("image:") and line.split()[1] != "normd":
                        yield f"{name}: {line.strip()}: not `image: normd`"


def adapter_problems(programs):
    """The metric of the autoscaler is one of normd's, and the adapter makes it."""
    rules = load("deploy/kubernetes/components/monitoring/prometheus-adapter.yaml")["rules"]["custom"]
    checker = queries_of(programs, [])
    for rule in rules:
        yield from (f"prometheus-adapter.yaml: {problem}" for problem in checker.problems(rule["seriesQuery"]))
        if not set(rule["resources"]["overrides"]) <= SCRAPED:
            yield "prometheus-adapter.yaml: series have no such label"


class Objects:
    """What one overlay renders to."""

    def __init__(self, objects):
        self.objects = objects

    def of(self, *kinds):
        return [found for found in self.objects if found["kind"] in kinds]

    @functools.cached_property
    def workloads(self):
        return self.of("Deployment", "StatefulSet", "Job")

    def problems(self, programs):
        for workload in self.workloads:
            pod = workload["spec"]["template"]["spec"]
            yield from restricted_problems(pod)
            yield from self.reference_problems(pod)
            for container in pod["containers"]:
                judge = server_problems if container["name"] == "normd" else client_problems
                yield from judge(programs, pod, container)
        yield from self.selector_problems()
        yield from self.autoscaler_problems(programs)

    def reference_problems(self, pod):
        maps = {found["metadata"]["name"] for found in self.of("ConfigMap")}
        for volume in pod.get("volumes", []):
            if "secret" in volume and volume["secret"]["secretName"] not in SECRETS:
                yield f"nobody makes the Secret {volume['secret']['secretName']}"
            if "configMap" in volume and volume["configMap"]["name"] not in maps:
                yield f"there is no ConfigMap {volume['configMap']['name']}"
        names = {volume["name"] for volume in pod.get("volumes", [])}
        names |= {claim["metadata"]["name"] for workload in self.workloads
                  for claim in workload["spec"].get("volumeClaimTemplates", [])}
        for container in pod["containers"]:
            yield from (f"there is no volume {mount['name']}" for mount in container.get("volumeMounts", [])
                        if mount["name"] not in names)
            for variable in container.get("env", []):
                secret = variable.get("valueFrom", {}).get("secretKeyRef")
                if secret and secret["name"] not in SECRETS:
                    yield f"nobody makes the Secret {secret['name']}"

    def selector_problems(self):
        pods = [workload["spec"]["template"]["metadata"]["labels"] for workload in self.workloads]
        services = [found["metadata"]["labels"] for found in self.of("Service")]
        containers = [container for workload in self.workloads
                      for container in workload["spec"]["template"]["spec"]["containers"]]
        ports = {port["name"] for container in containers for port in container.get("ports", [])}
        for found in self.of("Service"):
            yield from unmatched(found, found["spec"]["selector"], pods)
            yield from (f"no container has the port {port['targetPort']}" for port in found["spec"]["ports"]
                        if port["targetPort"] not in ports)
        for found in self.of("PodDisruptionBudget"):
            yield from unmatched(found, found["spec"]["selector"]["matchLabels"], pods)
        for found in self.of("NetworkPolicy"):
            if "app.kubernetes.io/name" in found["spec"]["podSelector"].get("matchLabels", {}):
                yield from unmatched(found, found["spec"]["podSelector"]["matchLabels"], pods)
            for rule in found["spec"].get("ingress", []):
                yield from (f"no container has the port {port['port']}" for port in rule["ports"]
                            if port["port"] not in ports)
        for found in self.of("ServiceMonitor"):
            yield from unmatched(found, found["spec"]["selector"]["matchLabels"], services)
            named = {port["name"] for service in self.of("Service") for port in service["spec"]["ports"]}
            yield from (f"no Service has the port {end['port']}" for end in found["spec"]["endpoints"]
                        if end["port"] not in named)
        if self.of("Namespace") and not any(not found["spec"]["podSelector"] and
                                            set(found["spec"]["policyTypes"]) == {"Ingress", "Egress"} and
                                            "ingress" not in found["spec"] and "egress" not in found["spec"]
                                            for found in self.of("NetworkPolicy")):
            yield "no policy denies everything by default"

    def autoscaler_problems(self, programs):
        names = {(found["kind"], found["metadata"]["name"]) for found in self.workloads}
        for found in self.of("HorizontalPodAutoscaler"):
            target = found["spec"]["scaleTargetRef"]
            if (target["kind"], target["name"]) not in names:
                yield f"the autoscaler's {target['kind']} {target['name']} is not there"
            for metric in found["spec"]["metrics"]:
                if metric["type"] == "Pods" and metric["pods"]["metric"]["name"] not in programs.metrics:
                    yield f"the autoscaler's metric {metric['pods']['metric']['name']} is none of normd's"


def unmatched(found, selector, candidates):
    if not any(selector.items() <= labels.items() for labels in candidates):
        yield f"{found['kind']} {found['metadata']['name']} selects nothing: {selector}"


def restricted_problems(pod):
    """The Pod Security Standard `restricted`, and a read-only root."""
    security = pod["securityContext"]
    if not security.get("runAsNonRoot") or security["seccompProfile"]["type"] != "RuntimeDefault":
        yield "the pod may run as root, or has no seccomp profile"
    if pod.get("automountServiceAccountToken", True):
        yield "the pod gets a token of the API"
    for container in pod["containers"]:
        asked = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
        if container["securityContext"] != asked:
            yield f"{container['name']} is not locked in: {container['securityContext']}"
        if container["resources"]["requests"].keys() < {"cpu", "memory"}:
            yield f"{container['name']} requests no CPU or memory"


def server_problems(programs, pod, container):
    environment = {variable["name"]: variable.get("value") for variable in container["env"]}
    yield from programs.environment_problems(environment)
    yield from plaintext_problems(environment)
    limit, needed = number(container["resources"]["limits"]["memory"]), programs.memory_rule(environment)
    if limit < needed:
        yield f"the memory limit {limit} is under what server/README.md asks for, {needed}"
    stop = programs.stopping_seconds(environment)
    if pod["terminationGracePeriodSeconds"] <= stop:
        yield f"terminationGracePeriodSeconds is no more than a stop takes ({stop} s)"
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for name, option in (("grpc", "NORMD_LISTEN"), ("admin", "NORMD_ADMIN_LISTEN")):
        if not environment[option].endswith(f":{ports[name]}"):
            yield f"the port {name} is {ports[name]}, but {option} is {environment[option]}"
        if environment[option].startswith("0.0.0.0"):
            yield f"{option} is {environment[option]}, which an IPv6 pod cannot be reached at: [::] serves both families"
    yield from probe_problems(programs, environment, container)


def plaintext_problems(environment):
    """Taken without its certificate, such a server would serve gRPC in plain text."""
    if "NORMD_TLS_CERTIFICATE" in environment and environment.get("NORMD_PLAINTEXT") == "true":
        yield "NORMD_PLAINTEXT beside a certificate: NORMD_ADMIN_PLAINTEXT opens the admin port alone"


def probe_problems(programs, environment, container):
    """A server with the manifest's options answers each probe."""
    with running(programs, environment) as admin:
        for name in ("startupProbe", "readinessProbe", "livenessProbe"):
            probe = container[name]["httpGet"]
            if probe["port"] != "admin":
                yield f"{name} does not ask the admin port"
            try:
                fetch(admin, probe["path"])
            except RuntimeError as error:
                yield f"{name}: {error}"


def client_problems(programs, pod, container):
    """A load test ends by itself, and its flags are normload's."""
    del pod
    yield from (f"normload has no flag {word.split('=')[0]}" for word in container["command"][1:]
                if word.split("=")[0].removeprefix("--") not in programs.flags)
