"""Pauses between attempts."""

from __future__ import annotations

import grpc
import pytest

from fireteam_client import DEFAULT_RETRY_POLICY, FireteamError, RetryPolicy

POLICY = RetryPolicy(max_attempts=4, initial_backoff=0.1, max_backoff=0.3)


def unavailable(pushback: str | None = None) -> FireteamError:
    trailers = [] if pushback is None else [("grpc-retry-pushback-ms", pushback)]
    return FireteamError(grpc.StatusCode.UNAVAILABLE, "later", trailers)


@pytest.mark.parametrize(
    ("attempt", "failure", "jitter", "expected"),
    [
        (1, unavailable(), 0, 0.05),
        (1, unavailable(), 1, 0.1),
        (2, unavailable(), 1, 0.2),
        (3, unavailable(), 1, 0.3),
        (4, unavailable(), 1, None),
        (1, unavailable("200"), 0, 0.2),
        (1, unavailable("200"), 1, 0.25),
        (1, unavailable("301"), 0, None),
        (1, unavailable("-1"), 0, None),
        (1, FireteamError(grpc.StatusCode.NOT_FOUND, "none"), 0, None),
    ],
)
def test_pause_doubles_has_jitter_and_follows_the_server(
    attempt: int, failure: FireteamError, jitter: float, expected: float | None
) -> None:
    assert POLICY.pause(attempt, failure, jitter) == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(("unheard", "retry_after", "expected"), [(0, 0, 0.2), (8, 0, 2), (60, 0, 5), (0, 7, 7)])
def test_pause_of_a_watch_grows_with_the_outage(unheard: float, retry_after: float, expected: float) -> None:
    assert DEFAULT_RETRY_POLICY.watch_pause(unheard, retry_after, 1) == expected
