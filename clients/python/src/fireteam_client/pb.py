"""Generated messages and enums, for requests and for the stubs of a client."""

from fireteam.v1.allocation_pb2 import *  # noqa: F403
from fireteam.v1.errors_pb2 import *  # noqa: F403
from fireteam.v1.latency_pb2 import *  # noqa: F403
from fireteam.v1.matchmaking_pb2 import *  # noqa: F403
from fireteam.v1.queue_pb2 import *  # noqa: F403
from fireteam.v1.ratings_pb2 import *  # noqa: F403
