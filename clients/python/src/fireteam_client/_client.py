"""Client of a server: queues, searches, advertisements and ratings."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import grpc
from fireteam.v1.latency_pb2_grpc import LatencyServiceStub
from fireteam.v1.matchmaking_pb2_grpc import MatchmakingServiceStub
from fireteam.v1.queue_pb2_grpc import QueueServiceStub
from fireteam.v1.ratings_pb2_grpc import RatingServiceStub

from fireteam_client import pb
from fireteam_client._advertisement import Advertisement
from fireteam_client._beacons import LatencyToken, Measurement
from fireteam_client._calls import Calls, TokenSource
from fireteam_client._retry import DEFAULT_RETRY_POLICY, RetryPolicy, idempotency_key
from fireteam_client._search import Search
from fireteam_client._ticket import Ticket

_CHANNEL_OPTIONS = (
    # Routers drop idle connections after some minutes.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # The client's own policy decides when to try again; so the connection waits no longer than that.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)


class Client:
    """Client of a fireteam server. Close it at the end, or use it in `async with`."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        *,
        token: str | TokenSource | None = None,
        retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY,
        attempt_timeout: float = 5.0,
    ) -> None:
        """Uses a channel of the caller, such as one with its own TLS settings. `attempt_timeout` is the deadline of each attempt."""
        source = (lambda: token) if isinstance(token, str) else token
        self._channel = channel
        self.calls = Calls(retry_policy, attempt_timeout, source)
        """Settings of the calls. For the handles of this package."""
        self.matchmaking = MatchmakingServiceStub(channel)
        """Generated stub. It adds no token and no idempotency key, and never retries."""
        self.queue = QueueServiceStub(channel)
        """Generated stub, as `matchmaking`."""
        self.ratings = RatingServiceStub(channel)
        """Generated stub, as `matchmaking`."""
        self.latency = LatencyServiceStub(channel)
        """Generated stub, as `matchmaking`."""

    async def close(self) -> None:
        """Ends the connections. Watches fail."""
        await self._channel.close(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def enter_queue(self, request: pb.QueueEnterRequest) -> Ticket:
        """Enters a party into a queue and returns its ticket. Adds an idempotency key to a request without one."""
        keyed = pb.QueueEnterRequest()
        keyed.CopyFrom(request)
        keyed.idempotency_key = keyed.idempotency_key or idempotency_key()
        return Ticket(self.calls, self.queue, self.ratings, await self.calls.unary(self.queue.Enter, keyed))

    async def measure_beacons(self) -> LatencyToken | None:
        """Measures round trips to the nearest beacons by UDP, for at most ten seconds, and returns a token for searches, advertisements and
        tickets. None if the server has no beacons."""
        listed: pb.GetBeaconsResponse = await self.calls.unary(self.latency.GetBeacons, pb.GetBeaconsRequest())
        if not listed.beacons:
            return None
        receipts = await Measurement(listed).run()
        # Also without a receipt: the server may know the round trip of the connection.
        report: pb.ReportTripsResponse = await self.calls.unary(self.latency.ReportTrips, pb.ReportTripsRequest(receipts=receipts))
        return LatencyToken(report.latency_token, report.good_for_ms / 1000, list(report.regions), list(report.verdicts))

    def new_search(self, set_id: int, party: pb.SessionCompositionData) -> Search:
        """Creates a search of a set for a party. Sends no request yet."""
        return Search(self.calls, self.matchmaking, set_id, party)

    async def advertise(self, request: pb.MatchmakingUpdateAdvertisementRequest) -> Advertisement:
        """Publishes a session or a game server. Leave id and token of the request empty."""
        published = pb.MatchmakingUpdateAdvertisementRequest()
        published.CopyFrom(request)
        published.idempotency_key = published.idempotency_key or idempotency_key()
        response = await self.calls.unary(self.matchmaking.UpdateAdvertisement, published)
        return Advertisement(self.calls, self.matchmaking, self.queue, self.ratings, published, response)

    async def get_ratings(self, set_id: int, user_ids: Sequence[str]) -> list[pb.UserRating]:
        """Ratings of users in a set's pool, in the order of `user_ids`."""
        request = pb.GetRatingsRequest(matchmaking_set_id=set_id, user_ids=user_ids)
        return list((await self.calls.unary(self.ratings.GetRatings, request)).ratings)

    async def report_result(self, request: pb.ReportResultRequest) -> pb.ReportResultResponse:
        """Reports the result of a match. The request has the proof of permission. `Ticket` and `Advertisement` have the same call with
        their own proof."""
        return await self.calls.unary(self.ratings.ReportResult, request)


def connect(
    uri: str,
    *,
    token: str | TokenSource | None = None,
    retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY,
    attempt_timeout: float = 5.0,
) -> Client:
    """Client of the server at `uri`, such as `http://127.0.0.1:50051`, or `https://match.example:443` with the system's certificates. It
    connects with the first call, and again after each outage. Call it in a coroutine."""
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError(f"server `{uri}` is not a URI; use the form http://127.0.0.1:50051")
    if parts.scheme == "https":
        channel = grpc.aio.secure_channel(parts.netloc, grpc.ssl_channel_credentials(), options=_CHANNEL_OPTIONS)
    else:
        channel = grpc.aio.insecure_channel(parts.netloc, options=_CHANNEL_OPTIONS)
    return Client(channel, token=token, retry_policy=retry_policy, attempt_timeout=attempt_timeout)
