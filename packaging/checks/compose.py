#!/usr/bin/env python3
"""Runs the services of packaging/compose.yaml as processes, each with the command, variables and volumes that the file names.

All services share one network namespace, as in the file. Each has a root of its own: the servers that of the image, read-only; the
others a copy of this machine's with Debian's programs. Grafana is not in Debian: only its files are read.
"""

import json
import os
import pathlib
import pwd
import subprocess
import sys
import time
import urllib.parse
import urllib.request

import yaml

from first_match import call, play_first_match
from roots import copy_of_this_machine, extract_image, image_configuration, mount, start_confined
from support import PROCESSOR, REPOSITORY, notice_of_skipped_part, package, run_in_own_namespaces, skip, tool, version

FOLDER = REPOSITORY / "packaging"
# Debian's programs for the images, and the user that runs each.
DEBIAN_USERS = {"haproxy": "haproxy", "postgres": "postgres", "prometheus": "prometheus"}
HEALTHY_SECONDS_MAX = 60


def programs_path() -> str:
    """Folders with Debian's programs, Postgres included."""
    postgres = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))
    return ":".join(["/usr/sbin", "/usr/bin", "/sbin", "/bin", *map(str, postgres[-1:])])


class Stack:
    """The services of a compose file that run as processes."""

    def __init__(self, compose: dict, folder: pathlib.Path) -> None:
        self.compose, self.folder = compose, folder
        self.processes: dict[str, subprocess.Popen] = {}
        self.roots: dict[str, pathlib.Path] = {}

    def __enter__(self) -> "Stack":
        return self

    def __exit__(self, *error: object) -> None:
        for process in reversed(self.processes.values()):
            process.terminate()
        for process in self.processes.values():
            process.wait(timeout=30)

    def is_server(self, name: str) -> bool:
        return self.compose["services"][name]["image"] == f"fireteam:{version()}"

    def root_of(self, name: str) -> pathlib.Path:
        """A new root with the service's volumes."""
        folder = self.folder / name
        folder.mkdir()
        if self.is_server(name):
            root = extract_image(package(f"fireteam-{version()}-{PROCESSOR}.image.tar"), folder / "root")
            mount("--bind", root, root)
            mount("-o", "remount,bind,ro", root)
        else:
            root = copy_of_this_machine(folder / "machine")
            mount("--bind", "/dev", root / "dev")
            mount("-t", "proc", "proc", root / "proc")
        for volume in self.compose["services"][name].get("volumes", []):
            source, target, *options = volume.split(":")
            self.mount_volume(name, source, root / target.lstrip("/"), "ro" in options)
        return root

    def mount_volume(self, name: str, source: str, target: pathlib.Path, is_read_only: bool) -> None:
        if source.startswith("."):
            path = FOLDER / source
        else:
            # As an engine does: a new volume belongs to the user to whom the folder in the image belongs.
            path = self.folder / f"volume-{source}"
            path.mkdir(exist_ok=True)
            os.chown(path, *self.user_of(name))
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.mkdir() if path.is_dir() else target.touch()
        mount("--bind", path, target)
        if is_read_only:
            mount("-o", "remount,bind,ro", target)

    def user_of(self, name: str) -> tuple[int, int]:
        if self.is_server(name):
            settings = image_configuration(package(f"fireteam-{version()}-{PROCESSOR}.image.tar"))["config"]
            user, group = map(int, settings["User"].split(":"))
            return user, group
        entry = pwd.getpwnam(DEBIAN_USERS[self.program_of(name)])
        return entry.pw_uid, entry.pw_gid

    def arguments_of(self, name: str) -> list[str]:
        service = self.compose["services"][name]
        entrypoint = service.get("entrypoint") or (["/fireteam"] if self.is_server(name) else [])
        return [*entrypoint, *service.get("command", [])]

    def program_of(self, name: str) -> str:
        return pathlib.Path(self.arguments_of(name)[0]).name

    def start_process(self, name: str, arguments: list[str], stderr: object) -> subprocess.Popen:
        service = self.compose["services"][name]
        environment = {key: str(value) for key, value in service.get("environment", {}).items()} | {"PATH": programs_path()}
        folder = "/var/lib/fireteam" if self.is_server(name) else "/"
        # A program is found by this machine's PATH, as `execvpe` does; the roots have it at the same place.
        os.environ["PATH"] = programs_path()
        user, group = self.user_of(name)
        return start_confined(arguments, self.roots[name], folder, user, group, environment, stderr)

    def start(self, name: str) -> None:
        """Starts a service and waits until its health check passes."""
        self.roots[name] = self.root_of(name)
        if self.program_of(name) == "postgres":
            self.create_database(name)
        arguments = self.arguments_of(name)
        print(f"  {name}: {' '.join(arguments)}", flush=True)
        with open(self.folder / f"{name}.log", "w") as log:
            self.processes[name] = self.start_process(name, arguments, log)
        check = self.compose["services"][name].get("healthcheck")
        deadline = time.monotonic() + HEALTHY_SECONDS_MAX
        while check and self.start_process(name, check["test"][1:], subprocess.DEVNULL).wait() != 0:
            if self.processes[name].poll() is not None or time.monotonic() > deadline:
                self.fail(name, "is not healthy")
            # A health check has an interval, here as in the engine.
            time.sleep(0.2)

    def fail(self, name: str, problem: str) -> None:
        sys.exit(f"{name} {problem}:\n{(self.folder / f'{name}.log').read_text()[-4000:]}")

    def create_database(self, name: str) -> None:
        """Creates the cluster, user and database, as the entry point of the Postgres image does before it runs the command."""
        settings = self.compose["services"][name]["environment"]
        data = "/var/lib/postgresql/data"
        run_folder = self.roots[name] / "var/run/postgresql"
        run_folder.mkdir(parents=True, exist_ok=True)
        os.chown(run_folder, *self.user_of(name))
        (self.roots[name] / "tmp/password").write_text(settings["POSTGRES_PASSWORD"])
        (self.roots[name] / "tmp/password").chmod(0o644)
        settings["PGDATA"] = data
        initdb = ["initdb", "--username", settings["POSTGRES_USER"], "--pwfile", "/tmp/password", "--auth-host", "scram-sha-256"]
        with open(self.folder / "initdb.log", "w") as log:
            status = self.start_process(name, [*initdb, "--auth-local", "trust", "--no-sync", "--encoding", "UTF8", "--locale", "C.UTF-8"], log).wait()
        if status != 0:
            sys.exit((self.folder / "initdb.log").read_text())
        statement = f"create database {settings['POSTGRES_DB']};\n"
        (self.roots[name] / "tmp/create.sql").write_text(statement)
        single = ["sh", "-c", "postgres --single postgres < /tmp/create.sql"]
        if self.start_process(name, single, subprocess.DEVNULL).wait() != 0:
            sys.exit("cannot create the database")


def start_order(services: dict, names: list[str]) -> list[str]:
    """The services, each after those that it depends on."""
    order: list[str] = []

    def visit(name: str) -> None:
        service = services[name]
        before = list(service.get("depends_on", {}))
        if service.get("network_mode", "").startswith("service:"):
            before.append(service["network_mode"].removeprefix("service:"))
        for other in before:
            visit(other)
        if name not in order:
            order.append(name)

    for name in names:
        visit(name)
    return order


def query_prometheus(expression: str) -> list[dict]:
    url = "http://127.0.0.1:9090/api/v1/query?" + urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(url, timeout=10) as response:
        return json.load(response)["data"]["result"]


def wait_until(condition: object, problem: str, seconds: float = 30) -> None:
    """Polls a condition that no event announces, for a limited time."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if condition():
                return
        except OSError:
            pass
        if time.monotonic() > deadline:
            sys.exit(problem)
        time.sleep(0.2)


def check_files(compose: dict) -> list[str]:
    """Plain facts of the file: published ports, mounted files, and Grafana's provisioning."""
    problems = []
    for name, service in compose["services"].items():
        problems += [f"{name}: {port} is published on other addresses than 127.0.0.1"
                     for port in service.get("ports", []) if not port.startswith("127.0.0.1:")]
        problems += [f"{name}: {volume} does not exist" for volume in service.get("volumes", [])
                     if volume.startswith(".") and not (FOLDER / volume.split(":")[0]).exists()]
    provisioning = FOLDER / "grafana/provisioning"
    [source] = yaml.safe_load((provisioning / "datasources/prometheus.yaml").read_text())["datasources"]
    if source["url"] != "http://127.0.0.1:9090" or source["type"] != "prometheus":
        problems.append(f"the data source of Grafana is {source}")
    [provider] = yaml.safe_load((provisioning / "dashboards/fireteam.yaml").read_text())["providers"]
    targets = [volume.split(":")[1] for volume in compose["services"]["grafana"]["volumes"]]
    if provider["options"]["path"] not in targets:
        problems.append(f"the dashboards are in {provider['options']['path']}, which is not mounted: {targets}")
    for dashboard in (FOLDER / "grafana/dashboards").glob("*.json"):
        json.loads(dashboard.read_text())
    return problems


def check_running(stack: Stack) -> None:
    """What a user does with the running stack."""
    wait_until(lambda: "fireteam.v1.QueueService" in services_at("127.0.0.1:50051"), "HAProxy reaches no server")
    play_first_match()
    print("  two players were matched through HAProxy")
    rulesets = call("fireteam.v1.OperatorService/ListRulesets", {}, "127.0.0.1:50052")
    print(f"  the operator port lists {len(rulesets['rulesets'])} rulesets through HAProxy")
    wait_until(lambda: [it["value"][1] for it in query_prometheus('up{job="fireteam"}')] == ["1", "1"], "Prometheus reads not both servers")
    wait_until(lambda: query_prometheus("sum(fireteam_pass_tickets_proposed_total) > 0"), "Prometheus does not know the match")
    print("  Prometheus reads both servers, and has the two matched tickets")
    stack.processes["first"].terminate()
    if stack.processes["first"].wait(timeout=30) != 0:
        stack.fail("first", f"ended with status {stack.processes['first'].returncode}")
    wait_until(lambda: "fireteam.v1.QueueService" in services_at("127.0.0.1:50051"), "HAProxy does not use the second server")
    play_first_match()
    print("  after the first server has stopped, two players were matched at the second")
    for name, process in stack.processes.items():
        if name != "first" and process.poll() is not None:
            stack.fail(name, f"ended with status {process.returncode}")


def services_at(address: str) -> str:
    command = [tool("grpcurl"), "-plaintext", "-max-time", "2", address, "list"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def main() -> None:
    compose = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    problems = check_files(compose)
    if problems:
        sys.exit("\n".join(problems))
    for program in ("grpcurl", "haproxy", "prometheus", "promtool"):
        tool(program)
    if not list(pathlib.Path("/usr/lib/postgresql").glob("*/bin/postgres")):
        skip("postgres is not installed")
    folder = run_in_own_namespaces()
    subprocess.run([tool("promtool"), "check", "config", FOLDER / "prometheus.yml"], check=True)
    subprocess.run([tool("haproxy"), "-c", "-q", "-f", FOLDER / "haproxy.cfg"], check=True)
    names = [name for name in compose["services"] if name != "grafana"]
    with Stack(compose, folder) as stack:
        for name in start_order(compose["services"], names):
            stack.start(name)
        check_running(stack)
        print(f"{len(names)} of {len(compose['services'])} services ran with the commands of compose.yaml")
        notice_of_skipped_part("Grafana is not in Debian: the service `grafana` was NOT run, only its provisioning files were read")


if __name__ == "__main__":
    main()
