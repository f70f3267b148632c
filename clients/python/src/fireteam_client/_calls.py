"""Calls with deadline, token and retries."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc

from fireteam_client._errors import FireteamError
from fireteam_client._retry import RetryPolicy

TokenSource = Callable[[], str | Awaitable[str]]
"""Returns the caller's token, without `Bearer`. It is called before each attempt, so it should keep the token until shortly before its
expiry. A call that fails with UNAUTHENTICATED is repeated once if the source returns another token."""

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


class Calls:
    """Settings of all calls of a client."""

    def __init__(self, retry_policy: RetryPolicy, attempt_timeout: float, token_source: TokenSource | None) -> None:
        self.retry_policy = retry_policy
        self._attempt_timeout = attempt_timeout
        self._token_source = token_source

    async def token(self) -> str | None:
        """Token for the next attempt, if there is a source."""
        if self._token_source is None:
            return None
        token = self._token_source()
        return await token if inspect.isawaitable(token) else token

    async def has_other_token(self, failure: FireteamError, sent: str | None) -> bool:
        """Whether a call that failed can be repeated with another token than the one that it sent."""
        return failure.code == grpc.StatusCode.UNAUTHENTICATED and sent is not None and await self.token() != sent

    async def unary(
        self, method: grpc.aio.UnaryUnaryMultiCallable[_Request, _Response], request: _Request
    ) -> _Response:
        """Makes a call, and repeats it as the retry policy allows."""
        attempt, renewed = 1, False
        while True:
            token = await self.token()
            try:
                return await method(request, timeout=self._attempt_timeout, metadata=authorization(token))
            except grpc.aio.AioRpcError as error:
                failure = FireteamError.from_call(error)
            except asyncio.CancelledError:
                raise_if_closed()
                raise
            if not renewed and await self.has_other_token(failure, token):
                renewed = True
                continue
            pause = self.retry_policy.pause(attempt, failure, random.random())
            if pause is None:
                raise failure
            await asyncio.sleep(pause)
            attempt += 1


def raise_if_closed() -> None:
    """For a call that was cancelled: raises unless its task is cancelled, because then the client is closed."""
    task = asyncio.current_task()
    if task is not None and task.cancelling() == 0:
        raise FireteamError(grpc.StatusCode.CANCELLED, "client is closed; create another") from None


def authorization(token: str | None) -> tuple[tuple[str, str], ...]:
    """Metadata with a token."""
    return () if token is None else (("authorization", f"Bearer {token}"),)
