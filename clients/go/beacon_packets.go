package fireteam

import (
	"bytes"
	"encoding/binary"
	"slices"
	"time"
)

const (
	packetBytes     = 64
	helloPacket     = 0x11
	challengePacket = 0x12
	proofPacket     = 0x13
	receiptPacket   = 0x14
)

var packetMagic = []byte("FTL\x01")

// conversation with a beacon: hello, challenge, proof and receipt. Packets: docs/LATENCY.md of the server.
type conversation struct {
	beaconID uint32
	binding  []byte
	nonce    [8]byte
	sequence uint16
	// hasChallenge: the receipt is awaited.
	hasChallenge bool
}

// conversationStep is what a packet of a beacon brings.
type conversationStep int

const (
	// stepNone: the packet is not the awaited answer.
	stepNone conversationStep = iota
	// stepProof: the proof is to be sent at once, because the beacon measures until it arrives.
	stepProof
	// stepReceipt: the conversation is over.
	stepReceipt
	// stepBusy: the beacon asks to be left alone.
	stepBusy
)

func (c *conversation) packet(kind byte) []byte {
	packet := make([]byte, packetBytes)
	copy(packet, packetMagic)
	packet[4] = kind
	binary.BigEndian.PutUint16(packet[6:], c.sequence)
	copy(packet[8:], c.nonce[:])
	return packet
}

// hello is the first packet.
func (c *conversation) hello() []byte { return c.packet(helloPacket) }

// handle takes a packet of the beacon. It returns the proof to send, or the receipt.
func (c *conversation) handle(packet []byte) (conversationStep, []byte) {
	isOfRun := len(packet) == packetBytes && bytes.Equal(packet[:4], packetMagic) && binary.BigEndian.Uint16(packet[6:]) == c.sequence
	switch {
	case !isOfRun:
		return stepNone, nil
	case packet[4] == challengePacket && !c.hasChallenge:
		return c.prove(packet)
	case packet[4] == receiptPacket && c.hasChallenge:
		if binary.BigEndian.Uint32(packet[8:]) == c.beaconID && bytes.Equal(packet[32:48], c.binding) {
			return stepReceipt, packet
		}
	}
	return stepNone, nil
}

func (c *conversation) prove(challenge []byte) (conversationStep, []byte) {
	flags, waitingTime := challenge[5], binary.BigEndian.Uint16(challenge[48:])
	if !bytes.Equal(challenge[8:16], c.nonce[:]) || binary.BigEndian.Uint32(challenge[16:]) != c.beaconID || flags > 1 {
		return stepNone, nil
	}
	if flags == 1 {
		return stepBusy, nil
	}
	if waitingTime != 0 {
		return stepNone, nil
	}
	c.hasChallenge = true
	proof := c.packet(proofPacket)
	binary.BigEndian.PutUint32(proof[16:], c.beaconID)
	copy(proof[24:48], challenge[24:48])
	copy(proof[48:], c.binding)
	return stepProof, proof
}

// receiptRoundTrip is the round trip that a receipt names.
func receiptRoundTrip(receipt []byte) time.Duration {
	return time.Duration(binary.BigEndian.Uint32(receipt[20:])) * time.Microsecond
}

// hasMeasuredEnough: four or more answers, whose two least agree within a millisecond or 2 %.
func hasMeasuredEnough(roundTrips []time.Duration) bool {
	if len(roundTrips) < answersForEarlyEndMin {
		return false
	}
	least := slices.Sorted(slices.Values(roundTrips))
	return least[1]-least[0] <= max(time.Millisecond, least[0]/50)
}
