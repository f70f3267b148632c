"""Advertisement of a session or a game server, and the matches that queues give it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fireteam_client import pb
from fireteam_client._calls import Calls
from fireteam_client._errors import FireteamError
from fireteam_client._ticket import team_ranks

if TYPE_CHECKING:
    from fireteam.v1.matchmaking_pb2_grpc import MatchmakingServiceAsyncStub
    from fireteam.v1.queue_pb2_grpc import QueueServiceAsyncStub
    from fireteam.v1.ratings_pb2_grpc import RatingServiceAsyncStub


class Advertisement:
    """Advertisement. It expires at the end of its TTL unless heartbeats extend it."""

    def __init__(
        self,
        calls: Calls,
        matchmaking: MatchmakingServiceAsyncStub,
        queue: QueueServiceAsyncStub,
        ratings: RatingServiceAsyncStub,
        published: pb.MatchmakingUpdateAdvertisementRequest,
        response: pb.MatchmakingUpdateAdvertisementResponse,
    ) -> None:
        """For `Client.advertise`. `published` is sent again to a server that lost the advertisement."""
        self._calls, self._matchmaking, self._queue, self._ratings = calls, matchmaking, queue, ratings
        self._published = published
        self.latest: pb.MatchmakingUpdateAdvertisementResponse
        """Latest response to an update, with TTL, reservations and the ids of hosted matches."""
        self._take(response)

    @property
    def id(self) -> str:
        """Advertisement id, as searchers see it."""
        return self._published.advertisement_id

    async def heartbeat(self) -> None:
        """Extends the TTL. If the server no longer has the advertisement, it is published again."""
        try:
            await self._update(self._beat())
        except FireteamError as error:
            if error.reason != "ADVERTISEMENT_NOT_FOUND":
                raise
            await self._update(self._published)

    async def confirm_reservations(self, reservation_ids: Sequence[str]) -> None:
        """Says that these parties are on their way, so that their reservations no longer expire."""
        request = self._beat()
        request.confirmed_reservation_ids.extend(reservation_ids)
        await self._update(request)

    async def host_heartbeat(self, match_ids: Sequence[str] = ()) -> pb.QueueHostHeartbeatResponse:
        """Confirms matches that the queue has given this game server, and keeps them alive during play. Without ids it lists the
        matches. Send the next one after `next_beat_in_ms` of the response."""
        matches = [pb.HostedMatchBeat(match_id=match_id) for match_id in match_ids]
        token = self._published.advertisement_token
        request = pb.QueueHostHeartbeatRequest(advertisement_token=token, matches=matches)
        return await self._calls.unary(self._queue.HostHeartbeat, request)

    async def report_result(self, match_id: str, ranks: Mapping[int, int]) -> pb.ReportResultResponse:
        """Reports the rank of each team, 1 is the best, of a match that this game server hosts. It ends the match."""
        token = self._published.advertisement_token
        request = pb.ReportResultRequest(match_id=match_id, advertisement_token=token, team_ranks=team_ranks(ranks))
        return await self._calls.unary(self._ratings.ReportResult, request)

    async def delete(self) -> None:
        """Deletes the advertisement."""
        request = pb.MatchmakingDeleteAdvertisementRequest(
            advertisement_id=self.id, advertisement_token=self._published.advertisement_token
        )
        await self._calls.unary(self._matchmaking.DeleteAdvertisement, request)

    def _beat(self) -> pb.MatchmakingUpdateAdvertisementRequest:
        """Shortest update: id, token, set and TTL."""
        request = pb.MatchmakingUpdateAdvertisementRequest(
            advertisement_id=self.id,
            advertisement_token=self._published.advertisement_token,
            matchmaking_set_id=self._published.matchmaking_set_id,
        )
        if self._published.HasField("time_to_live_ms"):
            request.time_to_live_ms = self._published.time_to_live_ms
        return request

    async def _update(self, request: pb.MatchmakingUpdateAdvertisementRequest) -> None:
        self._take(await self._calls.unary(self._matchmaking.UpdateAdvertisement, request))

    def _take(self, response: pb.MatchmakingUpdateAdvertisementResponse) -> None:
        self._published.advertisement_id = response.advertisement_id
        self._published.advertisement_token = response.advertisement_token
        self.latest = response
