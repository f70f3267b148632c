"""The server's program as a child process: FIRETEAM_SERVER is its path."""

from __future__ import annotations

import asyncio
import os
import re
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path

RULESETS = Path(__file__).resolve().parents[3] / "rulesets"
# Longest time until a server serves, also on a busy machine, seconds.
START_TIMEOUT = 60
STARTED = re.compile(r"server started.* listen=(\S+).* operator_listen=(\S+)")


class ServerProcess:
    """A running server, with its store in a folder."""

    def __init__(self, folder: Path, *arguments: str, rulesets: Path = RULESETS) -> None:
        self._folder = folder
        self._arguments = ["--rulesets", str(rulesets), *arguments]
        self._ports = ("127.0.0.1:0", "127.0.0.1:0")
        self._process: Process | None = None
        self._log: asyncio.Task[None] | None = None

    @property
    def uri(self) -> str:
        """Address of the client port."""
        return f"http://{self._ports[0]}"

    async def start(self) -> None:
        """Starts a server: on free ports first, and later on the same store and ports."""
        listen, operator_listen = self._ports
        arguments = ["--listen", listen, "--operator-listen", operator_listen, *self._arguments]
        arguments += ["--token-key-file", "token-key", "--match-key-file", "match-key.pem"]
        settings = {name: value for name, value in os.environ.items() if not name.startswith("FIRETEAM_")}
        program = os.environ["FIRETEAM_SERVER"]
        self._process = await asyncio.create_subprocess_exec(
            program, "serve", *arguments, cwd=self._folder, env=settings, stdout=DEVNULL, stderr=PIPE
        )
        async with asyncio.timeout(START_TIMEOUT):
            self._ports = await self._read_ports(self._process)
        self._log = asyncio.create_task(self._drain(self._process))

    async def _read_ports(self, process: Process) -> tuple[str, str]:
        assert process.stderr is not None
        async for line in process.stderr:
            if found := STARTED.search(line.decode()):
                return found[1], found[2]
        raise AssertionError("the server ended before it served")

    async def _drain(self, process: Process) -> None:
        assert process.stderr is not None
        async for _ in process.stderr:
            pass

    async def kill(self) -> None:
        """Ends the process as a crash does."""
        if self._process is not None:
            if self._process.returncode is None:
                self._process.kill()
            await self._process.wait()
        if self._log is not None:
            await self._log
        self._process = self._log = None
