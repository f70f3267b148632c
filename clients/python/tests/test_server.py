"""The client against the server."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import grpc
import pytest
from duel import advertise, play_duel
from server_process import ServerProcess

from fireteam_client import Client, FireteamError, pb

# DUEL has a ready check and game servers; RANKED a ready check with cooldowns and no hosts; OPEN is searched.
DUEL, RANKED, OPEN = 11, 3, 1


def party(user_id: str) -> pb.SessionCompositionData:
    return pb.SessionCompositionData(players=[pb.PlayerData(user_id=user_id, skill=25)])


def enter_request(set_id: int, user_id: str) -> pb.QueueEnterRequest:
    return pb.QueueEnterRequest(matchmaking_set_id=set_id, session_composition=party(user_id))


async def next_in(
    statuses: AsyncGenerator[pb.TicketStatus, None], state: pb.TicketState.ValueType
) -> pb.TicketStatus:
    """Reads statuses until one has the state."""
    async for status in statuses:
        if status.state == state:
            return status
    raise AssertionError(f"the watch ended before {pb.TicketState.Name(state)}")


async def test_duel_is_played_and_both_ratings_change(client: Client) -> None:
    lines: list[str] = []
    await play_duel(client, DUEL, lines.append)
    assert len([line for line in lines if line.endswith("at 203.0.113.7:9000")]) == 2, lines
    assert "game server: reported, 2 ratings changed" in lines


async def test_watch_goes_on_after_the_server_is_killed_and_started_again(
    server: ServerProcess, client: Client
) -> None:
    ann = await client.enter_queue(enter_request(DUEL, "ann"))
    async with aclosing(ann.watch()) as ann_statuses:
        await next_in(ann_statuses, pb.TICKET_STATE_WAITING)

        await server.kill()
        with pytest.raises(FireteamError) as lost:
            await client.get_ratings(DUEL, ["ann"])
        assert (lost.value.code, lost.value.reason) == (grpc.StatusCode.UNAVAILABLE, "")
        await server.start()

        bob = await client.enter_queue(enter_request(DUEL, "bob"))
        game_server = await advertise(client, DUEL)
        match_id = (await next_in(ann_statuses, pb.TICKET_STATE_PROPOSED)).found_match.match_id
        await ann.respond(match_id, True)
        await bob.respond(match_id, True)
        while (await game_server.host_heartbeat([match_id])).matches[0].state != pb.HOSTED_MATCH_STATE_PLAYING:
            pass
        await next_in(ann_statuses, pb.TICKET_STATE_MATCHED)
        await game_server.report_result(match_id, {0: 1, 1: 1})
        await next_in(ann_statuses, pb.TICKET_STATE_ENDED)
        assert [status async for status in ann_statuses] == []


async def test_errors_have_the_reason_of_the_server(client: Client) -> None:
    ann = await client.enter_queue(enter_request(RANKED, "ann"))
    with pytest.raises(FireteamError) as queued:
        await client.enter_queue(enter_request(RANKED, "ann"))
    assert (queued.value.code, queued.value.reason) == (grpc.StatusCode.ALREADY_EXISTS, "ALREADY_QUEUED")
    assert queued.value.error_reason == pb.ERROR_REASON_ALREADY_QUEUED
    assert queued.value.metadata["player"] == "0"

    with pytest.raises(FireteamError) as invalid:
        await client.enter_queue(enter_request(RANKED, "a" * 10_000))
    assert invalid.value.reason == "INVALID_REQUEST"
    assert invalid.value.fields[0].field == "session_composition.players[0].user_id"

    bob = await client.enter_queue(enter_request(RANKED, "bob"))
    async with aclosing(bob.watch()) as statuses:
        match_id = (await next_in(statuses, pb.TICKET_STATE_PROPOSED)).found_match.match_id
    await ann.respond(match_id, False)
    with pytest.raises(FireteamError) as cooldown:
        await client.enter_queue(enter_request(RANKED, "ann"))
    assert cooldown.value.reason == "QUEUE_COOLDOWN"
    assert cooldown.value.retry_after is not None and cooldown.value.retry_after > 1
    assert (await bob.leave()).state == pb.TICKET_STATE_ENDED


async def test_search_finds_a_session_and_reserves_its_seats(client: Client) -> None:
    session = party("host")
    session.max_allowed_join_reservation_count = 3
    host = await client.advertise(
        pb.MatchmakingUpdateAdvertisementRequest(
            matchmaking_set_id=OPEN, session_composition=session, connect_data=b"198.51.100.4:9000"
        )
    )
    search = client.new_search(OPEN, party("guest"))
    candidates = (await search.search()).candidates
    assert len(candidates) == 1
    reservation = await search.reserve(candidates[0].advertisement_id)
    assert (reservation.seats, reservation.connect_data) == (1, b"198.51.100.4:9000")
    await host.heartbeat()
    assert len(host.latest.reservations) == 1
    await reservation.release()
    await host.heartbeat()
    assert len(host.latest.reservations) == 0
    await host.delete()
    with pytest.raises(FireteamError):
        await search.reserve(host.id)
