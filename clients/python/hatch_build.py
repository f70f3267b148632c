"""Generates the stubs in src/fireteam from the proto files, when a wheel is built and for an editable installation."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# Operators' calls are not part of a client.
NAMES = ["allocation", "errors", "latency", "matchmaking", "queue", "ratings"]


class CustomBuildHook(BuildHookInterface[Any]):
    """Runs protoc before the build."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Writes src/fireteam/v1."""
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        # In the repository, or in a source distribution.
        folders = [root / "../../proto", root / "proto"]
        proto = next(folder for folder in folders if (folder / "fireteam/v1").is_dir())
        outputs = ["python", "grpc_python", "mypy", "mypy_grpc"]
        # Tests serve some calls of a service only.
        options = ["--mypy_grpc_opt=generate_concrete_servicer_stubs"]
        command = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(proto), *options]
        command += [f"--{output}_out={root / 'src'}" for output in outputs]
        command += [str(proto / f"fireteam/v1/{name}.proto") for name in NAMES]
        subprocess.run(command, check=True)
