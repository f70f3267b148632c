#!/usr/bin/env python3
"""Prints the licence texts of all packages that the server's binary contains.

    packaging/third_party_licences.py x86_64-unknown-linux-musl

The texts come from the sources that cargo has downloaded. A package without a licence file is listed with its licence's name. The packages
in the console's scripts follow, from a file that console/bundle.js writes.
"""

import json
import pathlib
import subprocess
import sys

LICENCE_FILE_PREFIXES = ("license", "licence", "copying", "notice", "unlicense", "copyright")
LICENCE_FILE_BYTES_MAX = 256 * 1024
CONSOLE_LICENCES = pathlib.Path(__file__).parent.parent / "console" / "THIRD-PARTY-LICENCES.txt"


def linked_packages(metadata: dict) -> list[dict]:
    """Packages that the binary links, without those of build scripts and tests."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    waiting = [metadata["resolve"]["root"]]
    seen = set(waiting)
    while waiting:
        for dependency in nodes[waiting.pop()]["deps"]:
            is_linked = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            if is_linked and dependency["pkg"] not in seen:
                seen.add(dependency["pkg"])
                waiting.append(dependency["pkg"])
    from_registry = [packages[package] for package in seen if packages[package]["source"]]
    return sorted(from_registry, key=lambda package: (package["name"], package["version"]))


def licence_texts(package: dict) -> list[str]:
    """Texts of the licence files beside the package's manifest, in the order of their names."""
    folder = pathlib.Path(package["manifest_path"]).parent
    files = sorted(file for file in folder.iterdir() if file.name.lower().startswith(LICENCE_FILE_PREFIXES))
    small = [file for file in files if file.is_file() and file.stat().st_size <= LICENCE_FILE_BYTES_MAX]
    return [file.read_text(encoding="utf-8", errors="replace").strip() for file in small]


def main() -> None:
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", sys.argv[1]]
    packages = linked_packages(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
    packages_by_text: dict[str, list[str]] = {}
    for package in packages:
        name = f"{package['name']} {package['version']} ({package['license'] or 'see its licence file'})"
        for text in licence_texts(package) or ["This package has no licence file; its manifest names the licence above."]:
            packages_by_text.setdefault(text, []).append(name)
    print("Licences of the packages in the fireteam binary. fireteam itself is licensed under MIT or Apache-2.0.")
    print("The binary also contains the C library musl (MIT licence, https://musl.libc.org).")
    for text, names in packages_by_text.items():
        print("\n" + "=" * 100, *names, "-" * 100, text, sep="\n")
    print("\n" + CONSOLE_LICENCES.read_text(encoding="utf-8").strip())


if __name__ == "__main__":
    main()
