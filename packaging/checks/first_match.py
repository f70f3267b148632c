#!/usr/bin/env python3
"""Times each road from a package file to a first match of two players: two commands, and at most 60 seconds.

    packaging/checks/first_match.py            all roads: archive, wheel, npm, root, image
    packaging/checks/first_match.py wheel      the named roads
    packaging/checks/first_match.py --running  no road: plays with the server that runs on 127.0.0.1:50051
    packaging/checks/first_match.py --program "qemu-aarch64-static fireteam"    no road: starts this program and plays

The clock runs from the first command until both players' tickets are matched. It includes the commands, the start of the server,
and the players' calls by grpcurl. Each road runs in a network of its own, so nothing can be downloaded and the ports are free.
"""

import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time

from support import PROCESSOR, notice_of_skipped_part, package, run_in_own_namespaces, tool, version
from roots import start_image

SECONDS_MAX = 60
CLIENT_ADDRESS = "127.0.0.1:50051"
# A bundled ruleset with a queue for two, without a ready check and without a game server.
SET_ID = 12
NPM_PROCESSORS = {"x86_64": "x64", "aarch64": "arm64"}
STARTED = "server started"


def call(method: str, request: dict, address: str = CLIENT_ADDRESS) -> dict:
    command = [tool("grpcurl"), "-plaintext", "-max-time", "10", "-d", json.dumps(request), address, method]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{method}: {result.stderr}")
    return json.loads(result.stdout)


def play_first_match(address: str = CLIENT_ADDRESS) -> None:
    """Two players enter a queue and are matched; ends the check as failed if they are not, within 30 seconds."""
    tickets = []
    for user in ("ann", "bob"):
        request = {
            "matchmakingSetId": SET_ID,
            "idempotencyKey": f"first match of {user}, {os.urandom(8).hex()}",
            "sessionComposition": {"players": [{"userId": f"{user}-{os.urandom(4).hex()}"}]},
        }
        entered = call("fireteam.v1.QueueService/Enter", request, address)
        tickets.append({"ticketId": entered["status"]["ticketId"], "ticketToken": entered["ticketToken"]})
    watch = [tool("grpcurl"), "-plaintext", "-max-time", "30", "-d", json.dumps({"tickets": tickets}), address]
    watch.append("fireteam.v1.QueueService/Watch")
    matched: dict[str, str] = {}
    with subprocess.Popen(watch, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        text, decoder = "", json.JSONDecoder()
        for line in process.stdout:
            text += line
            try:
                event, end = decoder.raw_decode(text.lstrip())
            except json.JSONDecodeError:
                continue
            text = text.lstrip()[end:]
            status = event.get("status", event)
            if status.get("state") == "TICKET_STATE_MATCHED":
                matched[status["ticketId"]] = status["foundMatch"]["matchId"]
            if len(matched) == 2:
                process.kill()
        if len(matched) < 2 or len(set(matched.values())) != 1:
            sys.exit(f"the two players were not matched with each other: {matched} {text}")


class Server:
    """A server that a road's last command started. Stops it at the end."""

    def __init__(self, process: subprocess.Popen) -> None:
        self.process = process
        self.reader: threading.Thread | None = None
        # The server that never starts ends the check with its output.
        self.deadline = threading.Timer(SECONDS_MAX, process.kill)
        self.deadline.start()

    def wait_until_started(self) -> None:
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            if STARTED in line:
                # Goes on reading, so that the server's log never blocks it.
                self.reader = threading.Thread(target=self.process.stderr.read, daemon=True)
                self.reader.start()
                return
        sys.exit("the server did not start:\n" + "".join(lines))

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *error: object) -> None:
        self.deadline.cancel()
        if os.getpgid(self.process.pid) == self.process.pid:
            os.killpg(self.process.pid, signal.SIGTERM)
        else:
            self.process.terminate()
        self.process.wait(timeout=30)
        # The log ends when the server does, also one that is a child of the process.
        if self.reader:
            self.reader.join(timeout=30)


def start(command: str, folder: pathlib.Path) -> subprocess.Popen:
    return subprocess.Popen(shlex.split(command), cwd=folder, stderr=subprocess.PIPE, text=True, start_new_session=True)


def run(command: str, folder: pathlib.Path) -> None:
    print(f"  $ {command}", flush=True)
    subprocess.run(command, shell=True, check=True, cwd=folder, stdout=subprocess.DEVNULL)


def archive_road(folder: pathlib.Path) -> subprocess.Popen:
    name = f"fireteam-{version()}-{PROCESSOR}-linux-musl"
    run(f"tar -xzf {package(name + '.tar.gz')}", folder)
    return start(f"{name}/fireteam serve", folder)


def wheel_road(folder: pathlib.Path) -> subprocess.Popen:
    tag = f"manylinux2014_{PROCESSOR}.manylinux_2_17_{PROCESSOR}.musllinux_1_1_{PROCESSOR}"
    wheel = package(f"fireteam-{version()}-py3-none-{tag}.whl")
    run("python3 -m venv environment", folder)
    run(f"environment/bin/pip install --quiet --no-index --disable-pip-version-check {wheel}", folder)
    return start("environment/bin/fireteam serve", folder)


def npm_road(folder: pathlib.Path) -> subprocess.Popen:
    if shutil.which("npm") is None:
        raise FileNotFoundError("npm is not installed")
    run(f"npm install --silent --offline {package(f'fireteam-linux-{NPM_PROCESSORS[PROCESSOR]}-{version()}.tgz')}", folder)
    return start("npx --no-install fireteam serve", folder)


def root_road(folder: pathlib.Path) -> subprocess.Popen:
    """The image's root file system, read-only, with its own user: what a container runtime does, without one."""
    return start_image(package(f"fireteam-{version()}-{PROCESSOR}.image.tar"), folder)


def image_road(folder: pathlib.Path) -> subprocess.Popen:
    if shutil.which("podman") is None:
        raise FileNotFoundError("podman is not installed")
    image = package(f"fireteam-{version()}-{PROCESSOR}.image.tar")
    storage = f"podman --root {folder}/storage --runroot {folder}/run --storage-driver vfs --cgroup-manager cgroupfs --events-backend file"
    run(f"{storage} load --quiet --input {image}", folder)
    # runc also works with hybrid control groups, which crun refuses.
    runtime = "--runtime runc" if shutil.which("runc", path=f"{os.environ['PATH']}:/usr/sbin") else ""
    return start(f"{storage} {runtime} run --rm --network host --read-only --cap-drop all fireteam:{version()}", folder)


ROADS = {"archive": archive_road, "wheel": wheel_road, "npm": npm_road, "root": root_road, "image": image_road}


def travel(name: str, folder: pathlib.Path) -> float | None:
    """Seconds of a road, or none if a tool for it is missing."""
    folder.mkdir()
    began = time.monotonic()
    try:
        process = ROADS[name](folder)
    except FileNotFoundError as error:
        notice_of_skipped_part(f"road {name}: {error}")
        return None
    print(f"  $ {shlex.join(process.args)}", flush=True)
    with Server(process) as server:
        server.wait_until_started()
        play_first_match()
        return time.monotonic() - began


def play_with_program(program: str) -> None:
    folder = run_in_own_namespaces()
    with Server(start(f"{program} serve --store memory:", folder)) as server:
        server.wait_until_started()
        play_first_match()
    print(f"first match with {program}")


def main() -> None:
    if sys.argv[1:] == ["--running"]:
        play_first_match()
        return
    if sys.argv[1:2] == ["--program"]:
        play_with_program(sys.argv[2])
        return
    names = sys.argv[1:] or list(ROADS)
    unknown = [name for name in names if name not in ROADS]
    if unknown:
        sys.exit(f"unknown roads {unknown}; known are {list(ROADS)}")
    tool("grpcurl")
    folder = run_in_own_namespaces()
    slow = []
    for name in names:
        print(f"road {name}", flush=True)
        seconds = travel(name, folder / name)
        if seconds is not None:
            print(f"road {name}: first match after {seconds:.1f} s, at most {SECONDS_MAX} s", flush=True)
        if seconds is not None and seconds > SECONDS_MAX:
            slow.append(name)
    if slow:
        sys.exit(f"too slow: {slow}")


if __name__ == "__main__":
    main()
