"""Fixtures: a running server and a client of it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from server_process import ServerProcess

from fireteam_client import Client, connect


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ServerProcess]:
    """A server with the shipped rulesets on free ports."""
    if "FIRETEAM_SERVER" not in os.environ:
        pytest.skip("SKIPPED: FIRETEAM_SERVER is not set to the path of the server's program")
    process = ServerProcess(tmp_path)
    try:
        await process.start()
        yield process
    finally:
        await process.kill()


@pytest.fixture
async def client(server: ServerProcess) -> AsyncIterator[Client]:
    """A client of the server."""
    async with connect(server.uri) as client:
        yield client
