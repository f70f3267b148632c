"""Measurement of beacons: against the beacon of a server, and against scripted ones on loopback."""

from __future__ import annotations

import asyncio
import os
import struct
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from server_process import ServerProcess

from fireteam_client import Client, connect, pb
from fireteam_client._beacons import Measurement, has_measured_enough, targets_in_order

SET_ID = 21
# Round trips count only if a beacon has proven them, in searches and in the queue.
RULESET = f"""<Ruleset Name="Beacons" SetId="{SET_ID}">
  <SoftFilters><SoftFilter Attribute="latency" Weight="1" Min="0" Max="1000"/></SoftFilters>
  <Latency Trust="proven"/>
  <Teams Count="2" Size="1"/>
  <ExpansionConfigs><ExpansionConfig Name="reach" Type="latency"><Expansion ExpansionDurationMs="-1" Value="200"/></ExpansionConfig>
  </ExpansionConfigs>
  <Queue><Regions Mode="filter" Expansion="reach"/></Queue>
</Ruleset>"""
BINDING = bytes(range(16))


@pytest.fixture
async def beacon_server(tmp_path: Path) -> AsyncIterator[ServerProcess]:
    """A server with a beacon of its own."""
    if "FIRETEAM_SERVER" not in os.environ:
        pytest.skip("SKIPPED: FIRETEAM_SERVER is not set to the path of the server's program")
    rulesets = tmp_path / "rulesets"
    rulesets.mkdir()
    (rulesets / "beacons.xml").write_text(RULESET)
    beacon = ["--beacon-fleet-key-file", "fleet-key", "--beacon-listen", "127.0.0.1:0", "--beacon-id", "7", "--beacon-region", "eu"]
    beacon += ["--beacon-place", "50.1/8.7", "--beacon-announce-address", "127.0.0.1", "--observe-tcp=false"]
    process = ServerProcess(tmp_path, *beacon, rulesets=rulesets)
    try:
        await process.start()
        yield process
    finally:
        await process.kill()


async def measured_party(client: Client, user_id: str) -> pb.SessionCompositionData:
    """Party of one with a token of the server's beacon, which announces itself soon after the start."""
    async with asyncio.timeout(60):
        while (measured := await client.measure_beacons()) is None:
            pass
    assert set(measured.verdicts) == {pb.RECEIPT_VERDICT_PROVEN}, measured
    assert [(region.region, region.claimed) for region in measured.regions] == [("eu", False)]
    assert 0 < measured.regions[0].round_trip_ms < 1_000 and measured.good_for > 60
    assert repr(measured.token) not in repr(measured), "a token is not printed"
    return pb.SessionCompositionData(players=[pb.PlayerData(user_id=user_id)], latency_token=measured.token)


async def test_beacons_prove_the_round_trip_of_a_search_and_of_a_ticket(beacon_server: ServerProcess) -> None:
    async with connect(beacon_server.uri) as client:
        host = await measured_party(client, "host")
        host.party_size_composition.append(1)
        host.max_allowed_join_reservation_count = 2
        await client.advertise(pb.MatchmakingUpdateAdvertisementRequest(matchmaking_set_id=SET_ID, session_composition=host))
        ann, bob = await measured_party(client, "ann"), await measured_party(client, "bob")
        stranger = pb.SessionCompositionData(players=[pb.PlayerData(user_id="cid")])
        found = [(await client.new_search(SET_ID, party).search()).candidates[0] for party in (ann, stranger)]
        assert [candidate.HasField("round_trip_ms") for candidate in found] == [True, False]

        tickets = []
        for party in (ann, bob):
            request = pb.QueueEnterRequest(matchmaking_set_id=SET_ID, session_composition=party)
            tickets.append(await client.enter_queue(request))
        async for status in tickets[0].watch():
            if status.state == pb.TICKET_STATE_MATCHED:
                assert status.found_match.region == "eu"
                break
        assert (await tickets[1].heartbeat(latency_token=bob.latency_token)).state == pb.TICKET_STATE_MATCHED


class ScriptedBeacon(asyncio.DatagramProtocol):
    """A beacon that answers each packet with those of a script."""

    def __init__(self, script: Callable[[bytes], list[bytes]]) -> None:
        self._script = script
        self.asked = 0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.asked += data[4] == 0x11
        for packet in self._script(data):
            self._transport.sendto(packet, addr)


def challenge(hello: bytes, *, beacon_id: int = 7, flags: int = 0, wait_s: int = 0) -> bytes:
    header = hello[:4] + bytes([0x12, flags]) + hello[6:16]
    return header + struct.pack(">I", beacon_id) + b"key!" + struct.pack(">Q", 5) + b"c" * 16 + struct.pack(">H", wait_s) + bytes(14)


def receipt(proof: bytes, *, beacon_id: int = 7, binding: bytes = BINDING) -> bytes:
    header = proof[:4] + bytes([0x14, 4]) + proof[6:8]
    return header + struct.pack(">I4sII", beacon_id, b"key!", 1, 9_000) + bytes(8) + binding + b"m" * 16


async def receipts_of(script: Callable[[bytes], list[bytes]], copies: int = 1) -> tuple[list[bytes], ScriptedBeacon]:
    """Receipts of a measurement of a scripted beacon, which is listed with this number of ids."""
    transport, beacon = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: ScriptedBeacon(script), local_addr=("127.0.0.1", 0)
    )
    port = transport.get_extra_info("sockname")[1]
    beacons = [pb.Beacon(id=7 + number, address=bytes([127, 0, 0, 1]), port=port) for number in range(copies)]
    receipts = await Measurement(pb.GetBeaconsResponse(beacons=beacons, binding=BINDING, beacons_wanted=8)).run()
    transport.close()
    return receipts, beacon


def answer(packet: bytes) -> list[bytes]:
    return [challenge(packet)] if packet[4] == 0x11 else [receipt(packet)]


async def test_beacons_end_early_when_the_least_round_trips_agree() -> None:
    proofs: list[bytes] = []

    def script(packet: bytes) -> list[bytes]:
        proofs.extend([packet] if packet[4] == 0x13 else [])
        return answer(packet)

    receipts, beacon = await receipts_of(script)
    assert (len(receipts), beacon.asked) == (4, 4)
    # Sequence numbers ascend; time, cookie and binding are those of the challenge and of the server.
    assert [proof[6:8] for proof in proofs] == [bytes([0, number]) for number in (1, 2, 3, 4)]
    assert proofs[0][16:24] == bytes([0, 0, 0, 7, 0, 0, 0, 0]) and proofs[0][24:] == struct.pack(">Q", 5) + b"c" * 16 + BINDING


async def test_beacons_that_are_silent_or_busy_are_left_alone() -> None:
    began = time.monotonic()
    receipts, beacon = await receipts_of(lambda packet: [])
    assert (receipts, beacon.asked) == ([], 3)
    assert time.monotonic() - began < 10
    receipts, beacon = await receipts_of(lambda packet: [challenge(packet, flags=1, wait_s=5)])
    assert (receipts, beacon.asked) == ([], 1)


async def test_beacons_packets_that_were_not_asked_for_are_ignored() -> None:
    def script(packet: bytes) -> list[bytes]:
        if packet[4] == 0x13:
            return [receipt(packet, beacon_id=8), receipt(packet, binding=bytes(16)), receipt(packet)[:-1], receipt(packet), receipt(packet)]
        other_run = packet[:8] + bytes(8) + packet[16:]
        false = [b"", b"FTL\x01", packet, receipt(packet), challenge(other_run), challenge(packet, beacon_id=8), challenge(packet, flags=2)]
        return [*false, challenge(packet, wait_s=3), challenge(packet), challenge(packet)]

    receipts, beacon = await receipts_of(script)
    assert (len(receipts), beacon.asked) == (4, 4)
    assert {packet[8:12] + packet[32:48] for packet in receipts} == {bytes([0, 0, 0, 7]) + BINDING}


def test_beacons_without_a_usable_endpoint_are_left_out() -> None:
    good = pb.Beacon(id=1, address=bytes([192, 0, 2, 1]), port=7_777)
    near = pb.Beacon(id=2, address=bytes(15) + b"\x01", port=1, measure_first=True)
    bad = [pb.Beacon(id=3, address=address, port=port) for address, port in [(b"", 1), (bytes(4), 1), (bytes([224, 0, 0, 1]), 1)]]
    bad += [pb.Beacon(id=4, address=bytes([192, 0, 2, 1]), port=port) for port in (0, 65_536)]
    listed = pb.GetBeaconsResponse(beacons=[good, *bad, near, good], binding=BINDING)
    assert [beacon.id for beacon, _ in targets_in_order(listed)] == [2, 1]
    listed.binding = b"short"
    assert targets_in_order(listed) == []


def test_beacons_are_measured_enough_by_four_answers_that_agree() -> None:
    assert not has_measured_enough([0.010, 0.010, 0.010])
    assert has_measured_enough([0.030, 0.010, 0.011, 0.040])
    assert not has_measured_enough([0.030, 0.010, 0.012, 0.040])
    assert has_measured_enough([0.200, 0.203, 0.3, 0.4]), "2 % of a long round trip"
