#!/usr/bin/env python3
"""Writes a container image as one archive, from a folder with its root file system. Needs no container daemon.

    packaging/image.py ROOT PROCESSOR VERSION OUTPUT

`docker load`, `podman load` and `skopeo` read the archive: it is an OCI image layout with the manifest of `docker save` beside it.
Settings of the image are those of the last stage of packaging/Dockerfile. Times are SOURCE_DATE_EPOCH, so the same root gives the
same bytes.
"""

import datetime
import gzip
import hashlib
import io
import json
import os
import pathlib
import shlex
import sys
import tarfile

USER = 65532
NANOSECONDS = 1_000_000_000
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def image_settings(dockerfile: str) -> dict:
    """Settings of the last stage of a Dockerfile, as the image's configuration names them."""
    last_stage = dockerfile.replace("\\\n", " ").rsplit("\nFROM ", 1)[1]
    settings: dict = {"Env": [], "Volumes": {}, "ExposedPorts": {}}
    for line in last_stage.splitlines()[1:]:
        keyword, _, value = line.strip().partition(" ")
        if keyword == "USER":
            settings["User"] = value
        elif keyword == "WORKDIR":
            settings["WorkingDir"] = value
        elif keyword == "VOLUME":
            settings["Volumes"][value] = {}
        elif keyword == "ENV":
            settings["Env"].append(value)
        elif keyword == "EXPOSE":
            settings["ExposedPorts"] = {f"{port}/tcp": {} for port in value.split()}
        elif keyword == "ENTRYPOINT":
            settings["Entrypoint"] = json.loads(value)
        elif keyword == "CMD":
            settings["Cmd"] = json.loads(value)
        elif keyword == "HEALTHCHECK":
            settings["Healthcheck"] = health_check(value)
        elif keyword and keyword not in ("#", "COPY"):
            sys.exit(f"packaging/Dockerfile: unknown instruction {keyword} in the last stage; teach packaging/image.py")
    return settings


def health_check(value: str) -> dict:
    """`--interval=5s --timeout=3s CMD [...]` as the image's configuration names it."""
    options, _, command = value.partition("CMD ")
    names = {"--interval": "Interval", "--timeout": "Timeout", "--start-period": "StartPeriod"}
    check: dict = {"Test": ["CMD", *json.loads(command)]}
    for option in shlex.split(options):
        name, _, duration = option.partition("=")
        check[names[name]] = int(duration.removesuffix("s")) * NANOSECONDS
    return check


def add_file(archive: tarfile.TarFile, name: str, content: bytes, time: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = len(content), time, 0o644
    archive.addfile(entry, io.BytesIO(content))


def layer_of(root: pathlib.Path, time: int) -> bytes:
    """Tar of the root: sorted, with fixed times. The folder for data belongs to the image's user, all else to root."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(root.rglob("*")):
            entry = archive.gettarinfo(path, str(path.relative_to(root)))
            owner = USER if str(path.relative_to(root)) == "var/lib/fireteam" else 0
            entry.uid = entry.gid = owner
            entry.uname = entry.gname = ""
            entry.mtime = time
            with open(path, "rb") if path.is_file() else io.BytesIO() as content:
                archive.addfile(entry, content)
    return buffer.getvalue()


def blob(content: bytes, media_type: str) -> tuple[str, dict]:
    """Path of a blob in the archive, and the descriptor by which others refer to it."""
    digest = hashlib.sha256(content).hexdigest()
    return f"blobs/sha256/{digest}", {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def main() -> None:
    root, processor, version, output = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
    time = int(os.environ["SOURCE_DATE_EPOCH"])
    dockerfile = (pathlib.Path(__file__).parent / "Dockerfile").read_text()
    layer = layer_of(root, time)
    compressed = gzip.compress(layer, compresslevel=9, mtime=0)
    created = datetime.datetime.fromtimestamp(time, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    layer_digest = f"sha256:{hashlib.sha256(layer).hexdigest()}"
    labels = {"org.opencontainers.image.title": "fireteam", "org.opencontainers.image.version": version}
    labels["org.opencontainers.image.licenses"] = "MIT OR Apache-2.0"
    configuration = json.dumps(
        {
            "architecture": ARCHITECTURES[processor],
            "os": "linux",
            "created": created,
            "config": image_settings(dockerfile) | {"Labels": labels},
            "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
            "history": [{"created": created, "created_by": "packaging/image.py"}],
        }
    ).encode()
    oci = "application/vnd.oci.image"
    layer_path, layer_descriptor = blob(compressed, f"{oci}.layer.v1.tar+gzip")
    config_path, config_descriptor = blob(configuration, f"{oci}.config.v1+json")
    manifest = {"schemaVersion": 2, "mediaType": f"{oci}.manifest.v1+json"}
    manifest |= {"config": config_descriptor, "layers": [layer_descriptor]}
    manifest_bytes = json.dumps(manifest).encode()
    manifest_path, manifest_descriptor = blob(manifest_bytes, f"{oci}.manifest.v1+json")
    name = f"fireteam:{version}"
    manifest_descriptor["annotations"] = {
        "io.containerd.image.name": f"docker.io/library/{name}",
        "org.opencontainers.image.ref.name": version,
    }
    index = {"schemaVersion": 2, "mediaType": f"{oci}.index.v1+json", "manifests": [manifest_descriptor]}
    saved = [{"Config": config_path, "RepoTags": [name], "Layers": [layer_path]}]
    with tarfile.open(output, "w", format=tarfile.PAX_FORMAT) as archive:
        for path, content in sorted({layer_path: compressed, config_path: configuration, manifest_path: manifest_bytes}.items()):
            add_file(archive, path, content, time)
        add_file(archive, "index.json", json.dumps(index).encode(), time)
        add_file(archive, "manifest.json", json.dumps(saved).encode(), time)
        add_file(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}', time)


if __name__ == "__main__":
    main()
