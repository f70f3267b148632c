"""Ticket of a party in a queue, and the watch of its statuses."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import grpc

from fireteam_client import pb
from fireteam_client._calls import Calls, authorization, raise_if_closed
from fireteam_client._errors import FireteamError, TicketExpiredError, missing_field

if TYPE_CHECKING:
    from fireteam.v1.queue_pb2_grpc import QueueServiceAsyncStub
    from fireteam.v1.ratings_pb2_grpc import RatingServiceAsyncStub

# TTL of a ticket until the server has sent one, seconds.
_DEFAULT_TTL = 60.0


class Ticket:
    """Ticket of a party in a queue. It expires if it is neither watched nor kept alive by heartbeats."""

    def __init__(
        self,
        calls: Calls,
        queue: QueueServiceAsyncStub,
        ratings: RatingServiceAsyncStub,
        entered: pb.QueueEnterResponse,
    ) -> None:
        """For `Client.enter_queue`."""
        if not entered.HasField("status"):
            raise missing_field("status")
        self._calls, self._queue, self._ratings = calls, queue, ratings
        self._token = entered.ticket_token
        self.status: pb.TicketStatus = entered.status
        """Latest status that this client has received."""
        self.ttl: float = entered.expires_in_ms / 1000 or _DEFAULT_TTL
        """TTL without a heartbeat or a watch, seconds."""
        self.ignored_fields = tuple(entered.ignored_fields)
        """Fields of the request that were ignored, because the ruleset does not trust their source."""

    @property
    def id(self) -> str:
        """Ticket id."""
        return self.status.ticket_id

    @property
    def reference(self) -> pb.TicketReference:
        """Id and token, for requests of the stubs. Keep it secret."""
        return pb.TicketReference(ticket_id=self.id, ticket_token=self._token)

    async def watch(self) -> AsyncGenerator[pb.TicketStatus, None]:
        """Statuses of the ticket: the current one, and again after each change. The watch keeps the ticket alive. A lost watch is opened
        again, at any server, with pauses of 0.1 to 5 s: a waiting ticket's until it was not heard of for its TTL, that of a match until
        the match ends.

        It ends after the ticket has ended and no report of its result is awaited. It raises TicketExpiredError, or the FireteamError of
        a server that refuses the watch or of a client that is closed. Use `contextlib.aclosing` if the loop may be left early: closing
        it closes the stream."""
        state = _WatchState()
        while True:
            try:
                # Each stream is closed here, also when this generator is.
                stream = self._follow(state)
                try:
                    async for status in stream:
                        yield status
                        if status.state == pb.TICKET_STATE_ENDED and not _awaits_reports(status):
                            return
                finally:
                    await stream.aclose()
                # The server has none of the tickets any more.
                return
            except (FireteamError, TimeoutError) as error:
                pause = self._pause_after(state, error)
            await asyncio.sleep(pause)

    async def _follow(self, state: _WatchState) -> AsyncGenerator[pb.TicketStatus, None]:
        """One stream to its end."""
        state.is_fresh = False
        token = await self._calls.token()
        reference = self.reference
        reference.resume_token = state.resume_token
        stream = self._queue.Watch(pb.QueueWatchRequest(tickets=[reference]), metadata=authorization(token))
        try:
            while True:
                # The server repeats a status twice per TTL, so a stream that is silent for longer is lost.
                async with asyncio.timeout(self.ttl):
                    update = await stream.read()
                if not isinstance(update, pb.QueueWatchResponse):
                    return
                self.status = update.status
                state.take(update.status)
                yield update.status
        except grpc.aio.AioRpcError as error:
            failure = FireteamError.from_call(error)
            if not state.is_fresh and await self._calls.has_other_token(failure, token):
                raise FireteamError(grpc.StatusCode.UNAVAILABLE, "the token was renewed") from failure
            raise failure from error
        except asyncio.CancelledError:
            raise_if_closed()
            raise
        finally:
            stream.cancel()

    def _pause_after(self, state: _WatchState, error: FireteamError | TimeoutError) -> float:
        """Seconds to wait before the next stream. Raises if there is none."""
        retry_after = 0.0
        if isinstance(error, FireteamError):
            # A stream ends at its byte limit. The next one goes on at once, unless that sends no status either.
            if error.reason == "STREAM_LIMIT_REACHED" and state.is_fresh:
                return 0
            is_closed = error.code == grpc.StatusCode.CANCELLED
            if is_closed or error.is_final or error.retry_forbidden:
                raise error
            retry_after = error.retry_after or 0
        unheard = time.monotonic() - state.heard_at
        pause = self._calls.retry_policy.watch_pause(unheard, retry_after, random.random())
        if state.is_playing:
            return pause
        if unheard >= self.ttl:
            raise TicketExpiredError from error
        return min(pause, self.ttl - unheard)

    async def heartbeat(self, latency_token: bytes = b"") -> pb.TicketStatus:
        """Extends the ticket's TTL and returns its status. Not needed during a watch; otherwise once per half of the TTL. A latency token
        of `Client.measure_beacons` renews the player's round trips, also during a watch."""
        request = pb.QueueHeartbeatRequest(tickets=[self.reference], latency_token=latency_token)
        response = await self._calls.unary(self._queue.Heartbeat, request)
        if len(response.statuses) != 1:
            raise missing_field("statuses")
        self.status = response.statuses[0]
        return self.status

    async def respond(self, match_id: str, accept: bool) -> pb.TicketStatus:
        """Accepts or declines the proposed match for all players whom this client acts for."""
        request = pb.QueueRespondRequest(ticket_id=self.id, ticket_token=self._token, match_id=match_id, accept=accept)
        self.status = (await self._calls.unary(self._queue.Respond, request)).status
        return self.status

    async def leave(self) -> pb.TicketStatus:
        """Takes the party out of the queue or of its match, in each state."""
        request = pb.QueueLeaveRequest(ticket_id=self.id, ticket_token=self._token)
        response = await self._calls.unary(self._queue.Leave, request)
        self.status = response.ended if response.HasField("ended") else response.matched
        return self.status

    async def end_match(self, match_id: str, failed: bool) -> pb.MatchEndReason.ValueType:
        """Ends a match that no game server hosts. `failed`: it could not be hosted, and was not played."""
        request = pb.QueueEndMatchRequest(match_id=match_id, ticket_token=self._token, failed=failed)
        return (await self._calls.unary(self._queue.EndMatch, request)).end_reason

    async def report_result(self, match_id: str, ranks: Mapping[int, int]) -> pb.ReportResultResponse:
        """Reports the rank of each team, 1 is the best, of a match that a player hosts: each player reports. Or of one without a host,
        from the backend. The response's state says whether other sides must report too."""
        request = pb.ReportResultRequest(match_id=match_id, ticket_token=self._token, team_ranks=team_ranks(ranks))
        return await self._calls.unary(self._ratings.ReportResult, request)


@dataclass
class _WatchState:
    """State of a watch over all its streams."""

    heard_at: float = field(default_factory=time.monotonic)
    """Last time at which the server said that the ticket lives."""
    is_playing: bool = False
    """The match goes on without a watch."""
    is_fresh: bool = False
    """The stream has sent a status."""
    resume_token: bytes = b""
    """From the latest status."""

    def take(self, status: pb.TicketStatus) -> None:
        """Records a status."""
        self.heard_at = time.monotonic()
        self.is_fresh = True
        self.resume_token = status.resume_token
        self.is_playing = status.state == pb.TICKET_STATE_MATCHED or _awaits_reports(status)


def _awaits_reports(status: pb.TicketStatus) -> bool:
    """Whether the players still report the result, and further statuses say what the result is."""
    return status.found_match.reports.state == pb.REPORT_STATE_WAITING


def team_ranks(ranks: Mapping[int, int]) -> list[pb.TeamRank]:
    """Ranks of teams as the contract has them."""
    return [pb.TeamRank(team=team, rank=rank) for team, rank in sorted(ranks.items())]
