"""Retries and watches against a queue service on a socket of its own that fails as the test says."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from fireteam.v1 import queue_pb2_grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2

from fireteam_client import Client, FireteamError, RetryPolicy, TicketExpiredError, TokenSource, connect, pb

WAITING = pb.TicketStatus(ticket_id="t", state=pb.TICKET_STATE_WAITING, resume_token=b"resume")
MATCHED = pb.TicketStatus(ticket_id="t", state=pb.TICKET_STATE_MATCHED)
ENDED = pb.TicketStatus(ticket_id="t", state=pb.TICKET_STATE_ENDED)
REQUEST = pb.QueueEnterRequest(matchmaking_set_id=11)


@dataclass
class Failure(Exception):
    """Failure that the script wants."""

    code: grpc.StatusCode
    reason: str
    retry_seconds: int | None = None

    def trailers(self) -> tuple[tuple[str, bytes], ...]:
        """Details of the failure."""
        status = status_pb2.Status(code=self.code.value[0], message="scripted")
        details: list[Any] = [error_details_pb2.ErrorInfo(reason=self.reason, domain="fireteam")]
        if self.retry_seconds is not None:
            details.append(error_details_pb2.RetryInfo(retry_delay=Duration(seconds=self.retry_seconds)))
        for detail in details:
            packed = AnyMessage()
            packed.Pack(detail)
            status.details.append(packed)
        return (("grpc-status-details-bin", status.SerializeToString()),)


@dataclass
class ScriptedQueue(queue_pb2_grpc.QueueServiceServicer):
    """Each call of Enter takes the next failure; each watch the next list of statuses, and a failure at the end if there is one."""

    ttl_ms: int = 60_000
    enter_failures: list[Failure] = field(default_factory=list)
    watches: list[tuple[list[pb.TicketStatus], Failure | None]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    tokens: list[str | bytes | None] = field(default_factory=list)
    resumed: list[bytes] = field(default_factory=list)
    events: asyncio.Queue[str] = field(default_factory=asyncio.Queue)

    async def Enter(self, request: pb.QueueEnterRequest, context: Any) -> pb.QueueEnterResponse:  # noqa: N802
        """Fails while there are failures."""
        self.keys.append(request.idempotency_key)
        self.tokens.append(dict(context.invocation_metadata()).get("authorization"))
        if self.enter_failures:
            await abort(context, self.enter_failures.pop(0))
        return pb.QueueEnterResponse(status=WAITING, ticket_token=b"token", expires_in_ms=self.ttl_ms)

    async def Watch(  # noqa: N802
        self, request: pb.QueueWatchRequest, context: Any
    ) -> AsyncIterator[pb.QueueWatchResponse]:
        """Sends the statuses. After the last list it stays open."""
        self.resumed.append(request.tickets[0].resume_token)
        statuses, failure = self.watches.pop(0) if len(self.watches) > 1 else self.watches[0]
        for status in statuses:
            yield pb.QueueWatchResponse(status=status)
        if failure is not None:
            await abort(context, failure)
        if statuses != [ENDED]:
            try:
                await self.events.put("open")
                await asyncio.Event().wait()
            finally:
                await self.events.put("closed")


async def abort(context: Any, failure: Failure) -> None:
    """Ends a call with the failure."""
    await context.abort(failure.code, "scripted", failure.trailers())


@asynccontextmanager
async def serving(
    queue: ScriptedQueue, token: TokenSource | None = None, retry_policy: RetryPolicy = RetryPolicy(initial_backoff=0.01)
) -> AsyncIterator[Client]:
    """Serves the queue, and gives a client of it."""
    server = grpc.aio.server()
    queue_pb2_grpc.add_QueueServiceServicer_to_server(queue, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with connect(f"http://127.0.0.1:{port}", token=token, retry_policy=retry_policy) as client:
            yield client
    finally:
        await server.stop(None)


async def test_repeated_entry_has_the_same_idempotency_key() -> None:
    unavailable = Failure(grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE")
    queue = ScriptedQueue(enter_failures=[unavailable, unavailable])
    async with serving(queue) as client:
        await client.enter_queue(REQUEST)
    assert len(queue.keys) == 3 and len(queue.keys[0]) == 32 and len(set(queue.keys)) == 1


async def test_call_is_not_repeated_if_the_server_asks_for_more_than_the_longest_pause() -> None:
    queue = ScriptedQueue(enter_failures=[Failure(grpc.StatusCode.UNAVAILABLE, "DRAINING", 3600)])
    async with serving(queue) as client:
        with pytest.raises(FireteamError) as failed:
            await client.enter_queue(REQUEST)
    assert (failed.value.retry_after, failed.value.reason, len(queue.keys)) == (3600, "DRAINING", 1)


async def test_call_is_repeated_once_with_another_token() -> None:
    expired = Failure(grpc.StatusCode.UNAUTHENTICATED, "CREDENTIALS_EXPIRED")
    queue = ScriptedQueue(enter_failures=[expired, expired])
    numbers = itertools.count()
    async with serving(queue, token=lambda: f"token-{next(numbers)}") as client:
        with pytest.raises(FireteamError) as failed:
            await client.enter_queue(REQUEST)
    assert failed.value.code == grpc.StatusCode.UNAUTHENTICATED
    assert len(queue.tokens) == 2 and queue.tokens[0] != queue.tokens[1]


async def test_watch_ends_when_the_ticket_has_expired_during_an_outage() -> None:
    unavailable = Failure(grpc.StatusCode.UNAVAILABLE, "DRAINING")
    queue = ScriptedQueue(ttl_ms=3000, watches=[([WAITING], unavailable), ([], unavailable)])
    async with serving(queue) as client:
        ticket = await client.enter_queue(REQUEST)
        began = time.monotonic()
        with pytest.raises(TicketExpiredError):
            async for _ in ticket.watch():
                pass
        assert time.monotonic() - began >= 3
    assert len(queue.resumed) >= 2


async def test_watch_of_a_match_that_is_silent_for_the_ttl_is_opened_again() -> None:
    queue = ScriptedQueue(ttl_ms=200, watches=[([MATCHED], None), ([ENDED], None)])
    async with serving(queue) as client:
        states = [status.state async for status in (await client.enter_queue(REQUEST)).watch()]
    assert states == [pb.TICKET_STATE_MATCHED, pb.TICKET_STATE_ENDED]
    assert len(queue.resumed) == 2


async def test_watch_resumes_after_the_last_status() -> None:
    limit = Failure(grpc.StatusCode.RESOURCE_EXHAUSTED, "STREAM_LIMIT_REACHED")
    queue = ScriptedQueue(watches=[([WAITING], limit), ([ENDED], None)])
    async with serving(queue) as client:
        states = [status.state async for status in (await client.enter_queue(REQUEST)).watch()]
    assert states == [pb.TICKET_STATE_WAITING, pb.TICKET_STATE_ENDED]
    assert queue.resumed == [b"", b"resume"]


async def test_watch_of_an_unknown_ticket_fails_at_once() -> None:
    queue = ScriptedQueue(watches=[([], Failure(grpc.StatusCode.NOT_FOUND, "TICKET_NOT_FOUND"))])
    async with serving(queue) as client:
        ticket = await client.enter_queue(REQUEST)
        with pytest.raises(FireteamError) as failed:
            await anext(ticket.watch())
    assert (failed.value.reason, len(queue.resumed)) == ("TICKET_NOT_FOUND", 1)


async def test_watch_that_is_left_closes_its_stream() -> None:
    queue = ScriptedQueue(watches=[([WAITING], None)])
    async with serving(queue) as client, asyncio.timeout(60):
        ticket = await client.enter_queue(REQUEST)
        async with aclosing(ticket.watch()) as statuses:
            await anext(statuses)
        assert [await queue.events.get(), await queue.events.get()] == ["open", "closed"]

        waiting = asyncio.create_task(watch_to_the_end(ticket.watch()))
        assert await queue.events.get() == "open"
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await queue.events.get() == "closed"


async def test_watch_ends_when_the_client_is_closed() -> None:
    queue = ScriptedQueue(watches=[([WAITING], None)])
    async with serving(queue) as client, asyncio.timeout(60):
        waiting = asyncio.create_task(watch_to_the_end((await client.enter_queue(REQUEST)).watch()))
        assert await queue.events.get() == "open"
        await client.close()
        with pytest.raises(FireteamError) as failed:
            await waiting
        assert failed.value.code == grpc.StatusCode.CANCELLED


async def watch_to_the_end(statuses: Any) -> None:
    """Reads all statuses."""
    async for _ in statuses:
        pass


async def test_connect_names_the_right_form() -> None:
    with pytest.raises(ValueError, match="use the form http://127.0.0.1:50051"):
        connect("127.0.0.1:50051")
