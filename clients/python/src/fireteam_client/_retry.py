"""Retry policy: number of attempts and exponential backoff with jitter."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import grpc

from fireteam_client._errors import FireteamError


@dataclass(frozen=True)
class RetryPolicy:
    """Policy for calls that fail with UNAVAILABLE. Calls that fail with another code are not repeated: another attempt would give the
    same result. All calls of this client are idempotent."""

    max_attempts: int = 4
    """Maximum number of attempts, including the first; 1 disables retries."""
    initial_backoff: float = 0.2
    """Longest wait before the second attempt, seconds; it doubles for each further one."""
    max_backoff: float = 5.0
    """Longest wait between attempts, seconds. If the server asks for more, the call fails, and the error has the delay."""

    def pause(self, attempt: int, failure: FireteamError, jitter: float) -> float | None:
        """Seconds to wait after attempt number `attempt` (from 1) failed; None if the call must not be repeated. `jitter` is uniform
        in [0, 1) and spreads clients that failed together."""
        if failure.code != grpc.StatusCode.UNAVAILABLE or failure.retry_forbidden or attempt >= self.max_attempts:
            return None
        if failure.retry_after is not None:
            return None if failure.retry_after > self.max_backoff else failure.retry_after * (1 + jitter / 4)
        doubled = self.initial_backoff * (1 << min(attempt - 1, 16))
        return min(doubled, self.max_backoff) * (0.5 + jitter / 2)

    def watch_pause(self, unheard: float, retry_after: float, jitter: float) -> float:
        """Seconds to wait before a lost watch is opened again, after `unheard` seconds without a status: a quarter of it, within the
        policy's bounds, or the server's delay if that is longer."""
        grown = min(max(self.initial_backoff, unheard / 4), self.max_backoff)
        return max(grown * (0.5 + jitter / 2), retry_after)


DEFAULT_RETRY_POLICY = RetryPolicy()
"""Four attempts, 200 ms to 5 s apart."""


def idempotency_key() -> str:
    """128 random bits as 32 hexadecimal digits. For anonymous callers only this key distinguishes one caller's requests from
    another's."""
    return secrets.token_hex(16)
