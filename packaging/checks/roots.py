"""Root file systems for programs under test: that of the image, and a copy of this machine's. Use them in mounts of their own."""

import ctypes
import json
import os
import pathlib
import subprocess
import tarfile

PR_SET_NO_NEW_PRIVS = 38


def image_configuration(image: pathlib.Path) -> dict:
    """Configuration of the image: user, command, variables."""
    with tarfile.open(image) as archive:
        saved = json.load(archive.extractfile("manifest.json"))
        return json.load(archive.extractfile(saved[0]["Config"]))


def extract_image(image: pathlib.Path, root: pathlib.Path) -> pathlib.Path:
    """Extracts all layers of an image archive to a folder, with owners and modes."""
    root.mkdir(parents=True)
    with tarfile.open(image) as archive:
        saved = json.load(archive.extractfile("manifest.json"))
        for layer in saved[0]["Layers"]:
            with tarfile.open(fileobj=archive.extractfile(layer)) as content:
                # Owners and modes as they are: the archive is our own.
                content.extraction_filter = lambda member, _: member
                content.extractall(root, numeric_owner=True)
    return root


def copy_of_this_machine(folder: pathlib.Path) -> pathlib.Path:
    """A root that shows this machine's files. Changes are kept in memory and do not reach the machine."""
    folder.mkdir()
    mount("-t", "tmpfs", "tmpfs", folder)
    for name in ("changes", "work", "root"):
        (folder / name).mkdir()
    layers = f"lowerdir=/,upperdir={folder}/changes,workdir={folder}/work"
    mount("-t", "overlay", "overlay", "-o", layers, folder / "root")
    return folder / "root"


def mount(*arguments: str | pathlib.Path) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True)


def start_image(image: pathlib.Path, folder: pathlib.Path) -> subprocess.Popen:
    """Starts the image's command with its settings. Only the folder for data is writable, all else of its root is not."""
    settings = image_configuration(image)["config"]
    root, data = extract_image(image, folder / "root"), folder / "data"
    user, group = map(int, settings["User"].split(":"))
    data.mkdir()
    os.chown(data, user, group)
    mount("--bind", root, root)
    mount("-o", "remount,bind,ro", root)
    [volume] = settings["Volumes"]
    mount("--bind", data, root / volume.lstrip("/"))
    environment = dict(variable.split("=", 1) for variable in settings["Env"])
    arguments = settings["Entrypoint"] + settings["Cmd"]
    return start_confined(arguments, root, settings["WorkingDir"], user, group, environment)


def start_confined(
    arguments: list[str],
    root: pathlib.Path,
    folder: str,
    user: int,
    group: int,
    environment: dict[str, str],
    stderr: object = subprocess.PIPE,
) -> subprocess.Popen:
    """Starts a program in another root, as a user without privileges that can get none."""

    def confine() -> None:
        os.chroot(root)
        os.chdir(folder)
        os.setgroups([])
        os.setgid(group)
        os.setuid(user)
        ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)

    return subprocess.Popen(
        arguments, env=environment, stdout=subprocess.DEVNULL, stderr=stderr, text=True, preexec_fn=confine
    )
