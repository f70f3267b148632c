"""Client of the fireteam matchmaking server, on asyncio: typed calls with deadlines and retries, and handles of tickets, searches,
reservations and advertisements that keep their tokens. Messages are in `fireteam_client.pb`. Times are in seconds."""

from fireteam_client._advertisement import Advertisement
from fireteam_client._beacons import LatencyToken
from fireteam_client._calls import TokenSource
from fireteam_client._client import Client, connect
from fireteam_client._errors import FieldViolation, FireteamError, TicketExpiredError
from fireteam_client._retry import DEFAULT_RETRY_POLICY, RetryPolicy
from fireteam_client._search import Reservation, Search
from fireteam_client._ticket import Ticket

__all__ = [
    "DEFAULT_RETRY_POLICY",
    "Advertisement",
    "Client",
    "FieldViolation",
    "FireteamError",
    "LatencyToken",
    "Reservation",
    "RetryPolicy",
    "Search",
    "Ticket",
    "TicketExpiredError",
    "TokenSource",
    "connect",
]
