"""Checks deploy/compose: the file's form with docker-compose, and what we ask of every service."""

import os
import re
import shutil
import subprocess
import tempfile

import yaml

from facts import ROOT, number, text_of

FOLDER = os.path.join(ROOT, "deploy/compose")
PATH = os.path.join(FOLDER, "compose.yaml")


def check(programs):
    with open(PATH, encoding="utf-8") as text:
        source = text.read()
    with tempfile.TemporaryDirectory(prefix="normd-compose.") as folder:
        made = [make_secrets(f"{folder}/compose/secrets") for _ in range(2)]
        if made[0] != made[1]:
            yield "make-secrets.sh changes passwords that are there"
        yield from resolved(source, folder)
    yield from text_problems(source)
    services = yaml.safe_load(source)["services"]
    for name, service in services.items():
        yield from (f"compose.yaml: {name}: {problem}" for problem in service_problems(service))
    yield from normd_problems(services["normd"], programs)
    print(f"  compose.yaml: {len(services)} services")


def make_secrets(folder):
    """File -> text."""
    text_of(os.path.join(FOLDER, "make-secrets.sh"), folder)
    return {name: text_of("cat", os.path.join(folder, name)) for name in os.listdir(folder)}


def resolved(source, folder):
    """Whether docker-compose takes the file. Debian's release is older than the key `name`."""
    for entry in os.listdir(FOLDER):
        if entry not in ("compose.yaml", "secrets"):
            place = shutil.copytree if os.path.isdir(f"{FOLDER}/{entry}") else shutil.copy
            place(f"{FOLDER}/{entry}", f"{folder}/compose/{entry}")
    with open(f"{folder}/compose/compose.yaml", "w", encoding="utf-8") as out:
        out.write(re.sub(r"^name: .*\n", "", source, count=1, flags=re.MULTILINE))
    result = subprocess.run(["docker-compose", "--file", f"{folder}/compose/compose.yaml", "config", "--quiet"],
                            check=False, capture_output=True, text=True)
    if result.returncode:
        yield f"docker-compose config: {result.stderr.strip()}"


def text_problems(source):
    if re.search(r"(?i)(password|secret|token)\w*: *['\"]?(?!/run/secrets/)[\w]{6,}['\"]?$", source, re.MULTILINE):
        yield "compose.yaml has a secret in it"


def service_problems(service):
    if not re.fullmatch(r"\$\{\w+_IMAGE:-[^}]+\}", service["image"]):
        yield f"its image {service['image']} cannot be chosen from outside"
    if not service.get("read_only") or service.get("cap_drop") != ["ALL"]:
        yield "its root is not read-only, or it keeps capabilities"
    if "no-new-privileges:true" not in service.get("security_opt", []):
        yield "it may gain privileges"
    if "healthcheck" not in service:
        yield "it has no health check"
    for port in service.get("ports", []):
        if not port.startswith("127.0.0.1:"):
            yield f"port {port} is published beyond loopback"
    for volume in service.get("volumes", []):
        source = volume.split(":")[0]
        if source.startswith(".") and not os.path.exists(os.path.join(FOLDER, source)):
            yield f"there is no {source}"


def scraped_names():
    """The names by which Prometheus asks for the admin port."""
    with open(os.path.join(ROOT, "deploy/prometheus/prometheus.yml"), encoding="utf-8") as text:
        jobs = yaml.safe_load(text)["scrape_configs"]
    return {target.rsplit(":", 1)[0] for job in jobs if job["job_name"] == "normd"
            for static in job["static_configs"] for target in static["targets"]}


def normd_problems(service, programs):
    environment = service["environment"]
    for name in scraped_names() - set(environment.get("NORMD_ADMIN_HOSTS", "").split(",")):
        yield f"compose.yaml: Prometheus asks for {name}, which is not in NORMD_ADMIN_HOSTS"
    yield from (f"compose.yaml: {problem}" for problem in programs.environment_problems(environment))
    if number(service["stop_grace_period"]) <= programs.stopping_seconds(environment):
        yield f"stop_grace_period is no more than a stop takes ({programs.stopping_seconds(environment)} s)"
    if number(service["mem_limit"]) < programs.memory_rule(environment):
        yield f"mem_limit is under what server/README.md asks for, {programs.memory_rule(environment)}"
