"""Plays a match against a running server, as a game server and as two players in its queue. Prints each step, and `ok` at the end, or one
line with the failure.

    python duel.py http://127.0.0.1:50051 11

Set 11 is the shipped duel. For a server with authentication, set FIRETEAM_TOKEN to a token of a game server."""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from collections.abc import Callable
from contextlib import aclosing

import grpc

from fireteam_client import Advertisement, Client, FireteamError, connect, pb

# Connect data of the game server. Players receive it with their match.
CONNECT_DATA = b"203.0.113.7:9000"
# Seconds; shorter than the server asks for, because the demonstration should not wait.
BEAT_INTERVAL = 0.2
# Time limit of the whole duel, seconds.
TIMEOUT = 60

Log = Callable[[str], None]


def rank_of(team: int) -> int:
    """Rank of a team: the first one wins."""
    return 1 if team == 0 else 2


async def advertise(client: Client, set_id: int) -> Advertisement:
    """Publishes a game server with a seat for each player."""
    composition = pb.SessionCompositionData(party_size_composition=[1], max_allowed_join_reservation_count=2)
    return await client.advertise(
        pb.MatchmakingUpdateAdvertisementRequest(
            matchmaking_set_id=set_id,
            kind=pb.ADVERTISEMENT_KIND_GAME_SERVER,
            connect_data=CONNECT_DATA,
            session_composition=composition,
        )
    )


async def play(client: Client, set_id: int, user_id: str, joined: asyncio.Semaphore, log: Log) -> pb.MatchStatus:
    """One player's game: enters the queue, accepts each proposed match, joins the match, and returns it when it has been played."""
    measured = await client.measure_beacons()
    latency_token = measured.token if measured else b""
    party = pb.SessionCompositionData(players=[pb.PlayerData(user_id=user_id)], latency_token=latency_token)
    ticket = await client.enter_queue(pb.QueueEnterRequest(matchmaking_set_id=set_id, session_composition=party))
    accepted = playing = ""
    async with aclosing(ticket.watch()) as statuses:
        async for status in statuses:
            found = status.found_match
            if status.state == pb.TICKET_STATE_PROPOSED and found.match_id != accepted:
                # The status is repeated when the other player accepts.
                accepted = found.match_id
                await ticket.respond(accepted, True)
                log(f"{user_id}: accepted")
            if status.state == pb.TICKET_STATE_MATCHED and found.match_id != playing:
                playing = found.match_id
                address = found.assignment.game_server.connect_data.decode()
                log(f"{user_id}: joins team {found.team} at {address}")
                joined.release()
            if status.state == pb.TICKET_STATE_ENDED:
                if status.end_reason == pb.TICKET_END_REASON_PLAYED:
                    return found
                raise RuntimeError(f"the ticket has ended: {pb.TicketEndReason.Name(status.end_reason)}")
    raise RuntimeError("the watch ended before the ticket")


async def host(server: Advertisement, joined: asyncio.Semaphore, log: Log) -> None:
    """The game server: confirms the next match that the queue gives it, waits for both players, and reports the result."""
    match_ids: list[str] = []
    while True:
        beat = await server.host_heartbeat(match_ids)
        match_ids = list(beat.hosted_match_ids)
        playing = [match.match_id for match in beat.matches if match.state == pb.HOSTED_MATCH_STATE_PLAYING]
        if playing:
            break
        await asyncio.sleep(BEAT_INTERVAL)
    for _ in range(2):
        await joined.acquire()
    result = await server.report_result(playing[0], {0: rank_of(0), 1: rank_of(1)})
    if not result.rated:
        raise RuntimeError(f"the match was not rated: {pb.UnratedReason.Name(result.unrated)}")
    log(f"game server: reported, {len(result.changes)} ratings changed")


async def play_duel(client: Client, set_id: int, log: Log = print) -> None:
    """Enters two players, accepts their match, confirms it as its game server, reports the result and compares the ratings."""
    run = uuid.uuid4().hex[:8]
    users = [f"ann-{run}", f"bob-{run}"]
    before = await client.get_ratings(set_id, users)
    server = await advertise(client, set_id)
    # Here players join their game server by a semaphore; in a game, over the network and with their credential.
    joined = asyncio.Semaphore(0)
    async with asyncio.timeout(TIMEOUT), asyncio.TaskGroup() as group:
        group.create_task(host(server, joined, log))
        games = [group.create_task(play(client, set_id, user, joined, log)) for user in users]
    after = await client.get_ratings(set_id, users)
    for user, game, old, new in zip(users, games, before, after, strict=True):
        log(f"{user}: rating {old.rating.rating:.2f}, then {new.rating.rating:.2f}")
        has_won = rank_of(game.result().team) == 1
        if old.rating.rating == new.rating.rating or has_won != (new.rating.rating > old.rating.rating):
            raise RuntimeError("the winner's rating must rise, and the other's must fall")
    await server.delete()


async def main(uri: str = "http://127.0.0.1:50051", set_id: str = "11") -> None:
    """Plays the duel at a server."""
    async with connect(uri, token=os.environ.get("FIRETEAM_TOKEN") or None) as client:
        await play_duel(client, int(set_id))
    print("ok")


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except* (FireteamError, RuntimeError, TimeoutError, ValueError, grpc.RpcError) as failures:
        sys.exit(f"failed: {'; '.join(str(failure) for failure in failures.exceptions)}")
