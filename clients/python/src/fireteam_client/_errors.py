"""Errors of failed calls, with the details that the server sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

import grpc
from google.rpc import error_details_pb2, status_pb2

from fireteam_client import pb

# Trailers with the details, and with the server's retry delay in milliseconds; a negative value forbids a retry.
_DETAILS_TRAILER = "grpc-status-details-bin"
_PUSHBACK_TRAILER = "grpc-retry-pushback-ms"

# Codes and reasons for which no later call of this client can succeed either.
_FINAL_CODES = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNIMPLEMENTED,
}
_FINAL_REASONS = {"UNKNOWN_MATCHMAKING_SET", "SET_RETIRED", "TICKET_NOT_FOUND"}


@dataclass(frozen=True)
class FieldViolation:
    """Invalid field of a request."""

    field: str
    """Path in the request, such as `session_composition.players[1].skill`."""
    description: str
    """Description of a valid value."""


class FireteamError(Exception):
    """Error of a failed call."""

    code: grpc.StatusCode
    """gRPC status code. A lost connection is UNAVAILABLE."""
    reason: str
    """Value of `pb.ErrorReason` without its prefix, such as `SEATS_TAKEN`. Empty if the call failed on the way to the server."""
    metadata: Mapping[str, str]
    """Details of the reason, such as the current ruleset hash."""
    fields: tuple[FieldViolation, ...]
    """Invalid fields of the request."""
    retry_after: float | None
    """Retry delay in seconds; None if the server gave none."""
    retry_forbidden: bool
    """Whether the server forbids a retry."""

    def __init__(self, code: grpc.StatusCode, message: str, trailers: Iterable[tuple[str, str | bytes]] = ()) -> None:
        """`trailers` are those of the call; they have the details."""
        info = error_details_pb2.ErrorInfo()
        retry = error_details_pb2.RetryInfo()
        request = error_details_pb2.BadRequest()
        by_name = dict(trailers)
        details = by_name.get(_DETAILS_TRAILER, b"")
        if isinstance(details, bytes):
            for detail in status_pb2.Status.FromString(details).details:
                any(detail.Unpack(kind) for kind in (info, retry, request))
        self.code = code
        self.reason = info.reason
        self.metadata = dict(info.metadata)
        self.fields = tuple(FieldViolation(it.field, it.description) for it in request.field_violations)
        delays = [retry.retry_delay.ToTimedelta().total_seconds()] if retry.HasField("retry_delay") else []
        pushback = by_name.get(_PUSHBACK_TRAILER)
        # gRPC proposal A6: a negative or invalid pushback forbids a retry.
        self.retry_forbidden = pushback is not None and not (len(pushback) < 10 and pushback.isdigit())
        if pushback is not None and not self.retry_forbidden:
            delays.append(int(pushback) / 1000)
        self.retry_after = max(delays, default=None)
        parts = [f"{code.name}: {message}", *(f"{it.field}: {it.description}" for it in self.fields)]
        super().__init__("; ".join(parts))

    @classmethod
    def from_call(cls, error: grpc.aio.AioRpcError) -> FireteamError:
        """Converts the error of a call."""
        # An iterable of pairs, which its stubs call by other names.
        trailers = cast(Iterable[tuple[str, str | bytes]], error.trailing_metadata() or ())
        return cls(error.code(), error.details() or "", trailers)

    @property
    def error_reason(self) -> pb.ErrorReason.ValueType:
        """The reason as a value of the contract; unspecified if this client does not know it."""
        name = f"ERROR_REASON_{self.reason}"
        return pb.ErrorReason.Value(name) if name in pb.ErrorReason.keys() else pb.ERROR_REASON_UNSPECIFIED

    @property
    def is_final(self) -> bool:
        """Whether no later call of this client can succeed either."""
        return self.code in _FINAL_CODES or self.reason in _FINAL_REASONS


class TicketExpiredError(Exception):
    """A waiting ticket was not heard of for its TTL. Enter the queue again."""

    def __init__(self) -> None:
        super().__init__("ticket was not heard of for its TTL and has expired; enter the queue again")


def missing_field(name: str) -> ValueError:
    """Error of a response that lacks a field."""
    return ValueError(f"response lacks the field `{name}`; use a client that matches the server's version")
