"""Shared by the checks of the packages: where the packages and tools are, skipped checks, and networks of their own."""

import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = pathlib.Path(os.environ.get("PACKAGES", REPOSITORY / "target/packages"))
PROCESSOR = platform.machine()
# Exit status of a check that found no tool to run with. packaging/check counts it.
EXIT_SKIPPED = 77


def version() -> str:
    """Version of the server, from Cargo.toml."""
    lines = (REPOSITORY / "Cargo.toml").read_text().splitlines()
    return next(line.split('"')[1] for line in lines if line.startswith("version = "))


def skip(reason: str) -> None:
    """Ends the check as skipped."""
    print(f"SKIPPED: {reason}", flush=True)
    sys.exit(EXIT_SKIPPED)


def notice_of_skipped_part(reason: str) -> None:
    """Says that one part of a check was skipped; the others go on."""
    print(f"SKIPPED: {reason}", flush=True)


def package(name: str) -> pathlib.Path:
    """Path of a package; ends the check as failed if it was not built."""
    file = PACKAGES / name
    if not file.exists():
        sys.exit(f"{file} does not exist; run packaging/release")
    return file


def tool(name: str) -> str:
    """Path of a program in PATH or in the folder of the checks' tools; ends the check as skipped if there is none."""
    folders = os.pathsep.join([str(REPOSITORY / "target/tools"), os.environ["PATH"], "/usr/sbin", "/sbin"])
    found = shutil.which(name, path=folders)
    if found is None:
        skip(f"{name} is not installed")
    return found


def go_module(name_and_version: str) -> pathlib.Path:
    """Folder of a Go module's files, downloaded through the module proxy."""
    command = [tool("go"), "mod", "download", "-json", "-modcacherw", name_and_version]
    result = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False)
    if result.returncode != 0:
        skip(f"cannot download the Go module {name_and_version}: {result.stdout}{result.stderr}")
    return pathlib.Path(json.loads(result.stdout)["Dir"])


def run_in_own_namespaces() -> pathlib.Path:
    """Runs the calling script again with a network, mounts and processes of its own, and returns a new folder for its files.

    The network has loopback alone: the script's ports are free, and nothing is downloaded. When the script ends, its processes end and
    its mounts are gone. Only then is the folder removed, from outside, where no mount can lead to other files.
    """
    if "CHECK_FOLDER" in os.environ:
        return pathlib.Path(os.environ["CHECK_FOLDER"])
    if os.geteuid() != 0:
        skip("namespaces of its own need root")
    command = ["unshare", "--net", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command += ["sh", "-c", 'ip link set lo up && exec "$@"', "sh", sys.executable, *sys.argv]
    folder = tempfile.mkdtemp(prefix="fireteam-check-")
    os.chmod(folder, 0o755)
    environment = os.environ | {"CHECK_FOLDER": folder, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    try:
        status = subprocess.run(command, env=environment, check=False).returncode
    finally:
        shutil.rmtree(folder)
    sys.exit(status)
