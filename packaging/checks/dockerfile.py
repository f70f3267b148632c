#!/usr/bin/env python3
"""Builds the last stage of packaging/Dockerfile with podman on the root file system of the image, and compares the two images.

The first stage compiles the server in an image from a container registry. It is replaced by a folder with its result, so this check
needs no registry. Skipped where podman cannot build.
"""

import json
import subprocess
import sys

from roots import extract_image, image_configuration
from support import PROCESSOR, REPOSITORY, package, run_in_own_namespaces, skip, tool, version

# Settings that must be the same in both images.
SETTINGS = ("User", "ExposedPorts", "Entrypoint", "Cmd", "Volumes", "WorkingDir")


def main() -> None:
    podman = tool("podman")
    image = package(f"fireteam-{version()}-{PROCESSOR}.image.tar")
    folder = run_in_own_namespaces()
    extract_image(image, folder / "build/root-of-image")
    storage = [podman, "--root", f"{folder}/storage", "--runroot", f"{folder}/run", "--storage-driver", "vfs"]
    build = [*storage, "build", "--format", "docker", "--build-context", f"build={folder}/build", "--tag", "fireteam:test"]
    build += ["--file", f"{REPOSITORY}/packaging/Dockerfile", str(folder)]
    built = subprocess.run(build, capture_output=True, text=True, check=False)
    if built.returncode != 0:
        skip(f"podman cannot build here, so the last stage of the Dockerfile was NOT built: {built.stderr[-600:]}")
    subprocess.run([*storage, "save", "--quiet", "--output", f"{folder}/built.tar", "fireteam:test"], check=True)
    ours, theirs = image_configuration(image)["config"], image_configuration(folder / "built.tar")["config"]
    different = [f"{key}: {ours.get(key)} and {theirs.get(key)}" for key in SETTINGS if ours.get(key) != theirs.get(key)]
    if [it for it in theirs["Env"] if not it.startswith("PATH=")] != ours["Env"]:
        different.append(f"Env: {ours['Env']} and {theirs['Env']}")
    if theirs.get("Healthcheck", ours["Healthcheck"]) != ours["Healthcheck"]:
        different.append(f"Healthcheck: {ours['Healthcheck']} and {theirs['Healthcheck']}")
    files = {}
    for name, file in (("ours", image), ("theirs", folder / "built.tar")):
        root = extract_image(file, folder / name)
        paths = [path for path in sorted(root.rglob("*")) if str(path.relative_to(root)).split("/")[0] not in ("proc", "sys", "dev", "run", "etc")]
        files[name] = [(str(path.relative_to(root)), path.stat().st_mode, path.stat().st_uid, path.stat().st_size * path.is_file()) for path in paths]
    different += [f"file {entry}" for entry in sorted(set(files["ours"]) ^ set(files["theirs"]))]
    if different:
        sys.exit("the image of the Dockerfile differs:\n" + "\n".join(different))
    print(f"the last stage of the Dockerfile gives the same {len(files['ours'])} files and settings: {json.dumps(ours['Entrypoint'] + ours['Cmd'])}")


if __name__ == "__main__":
    main()
