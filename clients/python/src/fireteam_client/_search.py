"""Search of a party for open sessions, and reservations of their seats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fireteam_client import pb
from fireteam_client._calls import Calls
from fireteam_client._errors import missing_field
from fireteam_client._retry import idempotency_key

if TYPE_CHECKING:
    from fireteam.v1.matchmaking_pb2_grpc import MatchmakingServiceAsyncStub


class Search:
    """Search of one party. Its limits relax with the time since the first search, which the server reads from the token that this
    keeps."""

    def __init__(
        self, calls: Calls, matchmaking: MatchmakingServiceAsyncStub, set_id: int, party: pb.SessionCompositionData
    ) -> None:
        """For `Client.new_search`."""
        self._calls, self._matchmaking = calls, matchmaking
        self.request = pb.MatchmakingSearchRequest(matchmaking_set_id=set_id, session_composition=party)
        """Request of the next search, for setting a ruleset hash or excluding sessions."""

    async def search(self) -> pb.MatchmakingSearchResponse:
        """Searches with the limits for the time waited so far."""
        response = await self._calls.unary(self._matchmaking.Search, self.request)
        self.request.search_token = response.search_token
        return response

    async def reserve(self, advertisement_id: str) -> Reservation:
        """Reserves seats for the whole party in one of the last candidates."""
        request = pb.MatchmakingReserveRequest(
            advertisement_id=advertisement_id,
            matchmaking_set_id=self.request.matchmaking_set_id,
            session_composition=self.request.session_composition,
            search_token=self.request.search_token,
            idempotency_key=idempotency_key(),
        )
        response = await self._calls.unary(self._matchmaking.Reserve, request)
        return Reservation(self._calls, self._matchmaking, response)


class Reservation:
    """Seats reserved for a party. They expire unless the host confirms them."""

    def __init__(
        self, calls: Calls, matchmaking: MatchmakingServiceAsyncStub, response: pb.MatchmakingReserveResponse
    ) -> None:
        """For `Search.reserve`."""
        if not response.HasField("reservation"):
            raise missing_field("reservation")
        self._calls, self._matchmaking = calls, matchmaking
        self._token = response.reservation.reservation_token
        self.id: str = response.reservation.reservation_id
        """Reservation id, as the host sees it."""
        self.seats: int = response.reservation.seats
        """Number of seats."""
        self.expires_in: float = response.reservation.expires_in_ms / 1000
        """Seconds from the response until the reservation expires."""
        self.connect_data: bytes = response.connect_data
        """Published by the host, such as its address."""

    async def release(self) -> None:
        """Releases the seats."""
        request = pb.MatchmakingReleaseRequest(reservation_id=self.id, reservation_token=self._token)
        await self._calls.unary(self._matchmaking.Release, request)
