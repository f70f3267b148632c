"""Measurement of beacons: UDP conversations with the nearest ones, whose receipts the server turns into a latency token. Packets:
docs/LATENCY.md of the server."""

from __future__ import annotations

import asyncio
import random
import secrets
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from fireteam_client import pb

PACKET_BYTES = 64
MAGIC = b"FTL\x01"
HELLO, CHALLENGE, PROOF, RECEIPT = 0x11, 0x12, 0x13, 0x14

# Beacons that are measured at once, and of which receipts are wanted; those that do not answer are replaced.
BEACONS_AT_ONCE = 8
BEACONS_WANTED_MIN, BEACONS_WANTED_MAX = 8, 16
BEACONS_ASKED_MAX = 24
# Conversations with one beacon: at most six, three if none is answered, and four if their two least round trips agree.
CONVERSATIONS_MAX = 6
CONVERSATIONS_TO_SILENT_BEACON_MAX = 3
ANSWERS_FOR_EARLY_END_MIN = 4
# Seconds between the starts of two conversations of this client. Each sends two packets: at most 40 packets a second.
CONVERSATION_INTERVAL = 0.05
# Seconds in which an answer counts: twice the longest round trip so far, in these bounds.
ANSWER_TIMEOUT_MIN, ANSWER_TIMEOUT_MAX = 0.25, 1.0
# Longest time of a measurement, seconds. It ends with the receipts that it has.
MEASUREMENT_MAX = 10.0


@dataclass(frozen=True)
class LatencyToken:
    """Round trips to beacons, signed by the server."""

    token: bytes = field(repr=False)
    """For `SessionCompositionData.latency_token`, and `latency_token` of a heartbeat."""
    good_for: float
    """Seconds from the response for which the server accepts it. Measure again before."""
    regions: list[pb.RegionRoundTrip]
    """Round trips to the regions of beacons."""
    verdicts: list[pb.ReceiptVerdict.ValueType]
    """What each receipt was worth."""


class _Conversation:
    """Conversation with a beacon: the proof is sent as soon as the challenge arrives, because the beacon measures until then."""

    def __init__(self, beacon: pb.Beacon, binding: bytes, nonce: bytes, sequence: int) -> None:
        self._beacon_id, self._binding, self._nonce = struct.pack(">I", beacon.id), binding, nonce
        self._sequence = struct.pack(">H", sequence)
        self.has_challenge = False
        self.is_busy = False
        self.receipt: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()

    def hello(self) -> bytes:
        """The first packet."""
        return self._packet(HELLO, self._nonce)

    def handle(self, packet: bytes) -> bytes | None:
        """Takes a packet of the beacon, and returns the packet to send. None for one that is not the awaited answer."""
        if len(packet) != PACKET_BYTES or packet[:4] != MAGIC or packet[6:8] != self._sequence or self.receipt.done():
            return None
        if packet[4] == CHALLENGE and not self.has_challenge:
            return self._prove(packet)
        if packet[4] == RECEIPT and self.has_challenge and (packet[8:12], packet[32:48]) == (self._beacon_id, self._binding):
            self.receipt.set_result(packet)
        return None

    def _prove(self, challenge: bytes) -> bytes | None:
        flags, waiting_time = challenge[5], challenge[48:50]
        if (challenge[8:16], challenge[16:20]) != (self._nonce, self._beacon_id) or flags > 1:
            return None
        if flags == 1:
            # The beacon has too much to do, and asks to be left alone.
            self.is_busy = True
            self.receipt.set_result(None)
            return None
        if any(waiting_time):
            return None
        self.has_challenge = True
        return self._packet(PROOF, self._nonce + self._beacon_id + bytes(4) + challenge[24:48] + self._binding)

    def _packet(self, kind: int, content: bytes) -> bytes:
        return (MAGIC + bytes([kind, 0]) + self._sequence + content).ljust(PACKET_BYTES, b"\0")


class _Socket(asyncio.DatagramProtocol):
    """Socket of one address family. Packets go to the conversation with their sender."""

    def __init__(self) -> None:
        self.conversations: dict[tuple[str, int], _Conversation] = {}
        self.transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        conversation = self.conversations.get((addr[0], addr[1]))
        if conversation is not None and (answer := conversation.handle(data)) is not None:
            self.send(answer, addr)

    def send(self, packet: bytes, to: tuple[str, int]) -> None:
        """Sends a packet. A network that is down is silence, as a beacon that is down."""
        if self.transport is not None:
            self.transport.sendto(packet, to)

    def error_received(self, exc: Exception) -> None:
        """A beacon's port is closed: it stays silent."""


class Measurement:
    """One measurement of the beacons that a server lists. At most 24 beacons are asked, for at most ten seconds."""

    def __init__(self, listed: pb.GetBeaconsResponse) -> None:
        self._binding = listed.binding
        self._waiting = targets_in_order(listed)[:BEACONS_ASKED_MAX]
        self._wanted = min(max(listed.beacons_wanted, BEACONS_WANTED_MIN), BEACONS_WANTED_MAX)
        self._answered = 0
        self._running = 0
        self._sockets: dict[int, _Socket] = {}
        self._next_start = 0.0
        self._receipts: list[bytes] = []

    async def run(self) -> list[bytes]:
        """Measures, and returns the receipts."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(MEASUREMENT_MAX), asyncio.TaskGroup() as group:
                for version, family, any_address in ((4, socket.AF_INET, "0.0.0.0"), (6, socket.AF_INET6, "::")):
                    if any(address.version == version for _, address in self._waiting):
                        opened = await loop.create_datagram_endpoint(_Socket, local_addr=(any_address, 0), family=family)
                        self._sockets[version] = opened[1]
                for _ in range(min(BEACONS_AT_ONCE, len(self._waiting))):
                    group.create_task(self._measure_waiting_beacons())
        except TimeoutError:
            pass
        finally:
            for endpoint in self._sockets.values():
                if endpoint.transport is not None:
                    endpoint.transport.close()
        return self._receipts

    async def _measure_waiting_beacons(self) -> None:
        while self._waiting and self._answered + self._running < self._wanted:
            beacon, address = self._waiting.pop(0)
            self._running += 1
            self._answered += await self._measure(beacon, address)
            self._running -= 1

    async def _measure(self, beacon: pb.Beacon, address: IPv4Address | IPv6Address) -> bool:
        """Talks with a beacon until its least round trip is known. Returns whether it gave a receipt."""
        endpoint, to = self._sockets[address.version], (str(address), beacon.port)
        nonce = secrets.token_bytes(8)
        round_trips: list[float] = []
        for sequence in range(1, CONVERSATIONS_MAX + 1):
            if has_measured_enough(round_trips) or (not round_trips and sequence > CONVERSATIONS_TO_SILENT_BEACON_MAX):
                break
            conversation = endpoint.conversations[to] = _Conversation(beacon, self._binding, nonce, sequence)
            await self._wait_for_start()
            endpoint.send(conversation.hello(), to)
            receipt = await self._receipt(conversation, max(round_trips, default=ANSWER_TIMEOUT_MAX))
            if conversation.is_busy:
                break
            if receipt is not None:
                round_trips.append(struct.unpack(">I", receipt[20:24])[0] / 1e6)
                self._receipts.append(receipt)
        endpoint.conversations.pop(to, None)
        return bool(round_trips)

    async def _receipt(self, conversation: _Conversation, longest: float) -> bytes | None:
        """Receipt of a conversation, which has two answers. None if one is late."""
        timeout = min(max(2 * longest, ANSWER_TIMEOUT_MIN), ANSWER_TIMEOUT_MAX)
        for _ in range(2):
            done, _ = await asyncio.wait([conversation.receipt], timeout=timeout)
            if done:
                return conversation.receipt.result()
            if not conversation.has_challenge:
                break
        conversation.receipt.cancel()
        return None

    async def _wait_for_start(self) -> None:
        now = asyncio.get_running_loop().time()
        start = max(self._next_start, now)
        self._next_start = start + CONVERSATION_INTERVAL
        await asyncio.sleep(start - now)


def has_measured_enough(round_trips: Iterable[float]) -> bool:
    """Whether four or more answers have two least that agree within a millisecond or 2 %."""
    least = sorted(round_trips)
    return len(least) >= ANSWERS_FOR_EARLY_END_MIN and least[1] - least[0] <= max(0.001, 0.02 * least[0])


def targets_in_order(listed: pb.GetBeaconsResponse) -> list[tuple[pb.Beacon, IPv4Address | IPv6Address]]:
    """Beacons with a usable endpoint, each once: those that the server calls near first, otherwise in a random order. None without a
    binding."""
    if len(listed.binding) != 16:
        return []
    usable: dict[int, tuple[pb.Beacon, IPv4Address | IPv6Address]] = {}
    for beacon in listed.beacons:
        if len(beacon.address) in (4, 16) and 0 < beacon.port < 65_536:
            address = ip_address(beacon.address)
            if not address.is_unspecified and not address.is_multicast:
                usable.setdefault(beacon.id, (beacon, address))
    targets = list(usable.values())
    random.shuffle(targets)
    targets.sort(key=lambda target: not target[0].measure_first)
    return targets
