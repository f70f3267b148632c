package fireteam

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/fireteam-dev/fireteam/clients/go/fireteamv1"
)

var testBinding = []byte("0123456789abcdef")

func testChallenge(hello []byte, beaconID uint32, flags byte, waitS uint16) []byte {
	packet := make([]byte, packetBytes)
	copy(packet, hello[:16])
	packet[4], packet[5] = challengePacket, flags
	binary.BigEndian.PutUint32(packet[16:], beaconID)
	copy(packet[20:], "key!\x00\x00\x00\x00\x00\x00\x00\x05cccccccccccccccc")
	binary.BigEndian.PutUint16(packet[48:], waitS)
	return packet
}

func testReceipt(proof []byte, beaconID uint32, binding []byte) []byte {
	packet := make([]byte, packetBytes)
	copy(packet, proof[:8])
	packet[4], packet[5] = receiptPacket, 4
	binary.BigEndian.PutUint32(packet[8:], beaconID)
	binary.BigEndian.PutUint32(packet[20:], 9_000)
	copy(packet[32:], binding)
	return packet
}

// receiptsOf measures a beacon that answers each packet with those of a script. It returns the receipts and the number of hellos.
func receiptsOf(t *testing.T, script func([]byte) [][]byte) ([][]byte, int32) {
	t.Helper()
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.Close() }()
	var hellos atomic.Int32
	go func() {
		packet := make([]byte, 2*packetBytes)
		for {
			length, from, err := socket.ReadFromUDPAddrPort(packet)
			if err != nil {
				return
			}
			if packet[4] == helloPacket {
				hellos.Add(1)
			}
			for _, answer := range script(packet[:length]) {
				_, _ = socket.WriteToUDPAddrPort(answer, from)
			}
		}
	}()
	port := uint32(socket.LocalAddr().(*net.UDPAddr).Port)
	beacons := []*pb.Beacon{{Id: 7, Address: []byte{127, 0, 0, 1}, Port: port}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	receipts, err := measureBeacons(ctx, &pb.GetBeaconsResponse{Beacons: beacons, Binding: testBinding, BeaconsWanted: 8})
	if err != nil {
		t.Fatal(err)
	}
	return receipts, hellos.Load()
}

func TestBeaconsEndEarlyWhenTheLeastRoundTripsAgree(t *testing.T) {
	var proofs [][]byte
	receipts, hellos := receiptsOf(t, func(packet []byte) [][]byte {
		if packet[4] == helloPacket {
			return [][]byte{testChallenge(packet, 7, 0, 0)}
		}
		proofs = append(proofs, bytes.Clone(packet))
		return [][]byte{testReceipt(packet, 7, testBinding)}
	})
	if len(receipts) != 4 || hellos != 4 {
		t.Fatalf("%d receipts of %d conversations", len(receipts), hellos)
	}
	for number, proof := range proofs {
		// Time, cookie and binding are those of the challenge and of the server.
		expected := "\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05cccccccccccccccc" + string(testBinding)
		if int(binary.BigEndian.Uint16(proof[6:])) != number+1 || string(proof[16:]) != expected {
			t.Fatalf("proof %d: %q", number, proof)
		}
	}
}

func TestBeaconsThatAreSilentOrBusyAreLeftAlone(t *testing.T) {
	receipts, hellos := receiptsOf(t, func([]byte) [][]byte { return nil })
	if len(receipts) != 0 || hellos != 3 {
		t.Fatalf("silent: %d receipts of %d conversations", len(receipts), hellos)
	}
	receipts, hellos = receiptsOf(t, func(packet []byte) [][]byte { return [][]byte{testChallenge(packet, 7, 1, 5)} })
	if len(receipts) != 0 || hellos != 1 {
		t.Fatalf("busy: %d receipts of %d conversations", len(receipts), hellos)
	}
}

func TestBeaconsIgnorePacketsThatWereNotAskedFor(t *testing.T) {
	receipts, hellos := receiptsOf(t, func(packet []byte) [][]byte {
		good := testReceipt(packet, 7, testBinding)
		if packet[4] == proofPacket {
			return [][]byte{testReceipt(packet, 8, testBinding), testReceipt(packet, 7, make([]byte, 16)), good[:63], good, good}
		}
		otherRun := append(bytes.Clone(packet[:8]), make([]byte, 56)...)
		challenge := testChallenge(packet, 7, 0, 0)
		return [][]byte{
			{}, packetMagic, packet, good, testChallenge(otherRun, 7, 0, 0), testChallenge(packet, 8, 0, 0), testChallenge(packet, 7, 2, 0),
			testChallenge(packet, 7, 0, 3), challenge, challenge,
		}
	})
	if len(receipts) != 4 || hellos != 4 {
		t.Fatalf("%d receipts of %d conversations", len(receipts), hellos)
	}
	for _, receipt := range receipts {
		if binary.BigEndian.Uint32(receipt[8:]) != 7 || !bytes.Equal(receipt[32:48], testBinding) {
			t.Fatalf("%q", receipt)
		}
	}
}

func TestBeaconsWithoutAUsableEndpointAreLeftOut(t *testing.T) {
	address := []byte{192, 0, 2, 1}
	near := &pb.Beacon{Id: 2, Address: append(make([]byte, 15), 1), Port: 1, MeasureFirst: true}
	good := &pb.Beacon{Id: 1, Address: address, Port: 7_777}
	listed := &pb.GetBeaconsResponse{Binding: testBinding, Beacons: []*pb.Beacon{
		good, {Id: 3, Port: 1}, {Id: 3, Address: make([]byte, 4), Port: 1}, {Id: 3, Address: []byte{224, 0, 0, 1}, Port: 1},
		{Id: 4, Address: address}, {Id: 4, Address: address, Port: 65_536}, near, good,
	}}
	targets := beaconTargets(listed)
	if len(targets) != 2 || targets[0].id != 2 || targets[1].id != 1 {
		t.Fatalf("%v", targets)
	}
	listed.Binding = []byte("short")
	if targets := beaconTargets(listed); len(targets) != 0 {
		t.Fatalf("%v", targets)
	}
}

func TestBeaconsAreMeasuredEnoughByFourAnswersThatAgree(t *testing.T) {
	cases := []struct {
		milliseconds []int
		isEnough     bool
	}{{[]int{10, 10, 10}, false}, {[]int{30, 10, 11, 40}, true}, {[]int{30, 10, 12, 40}, false}, {[]int{200, 203, 300, 400}, true}}
	for _, one := range cases {
		var roundTrips []time.Duration
		for _, milliseconds := range one.milliseconds {
			roundTrips = append(roundTrips, time.Duration(milliseconds)*time.Millisecond)
		}
		if hasMeasuredEnough(roundTrips) != one.isEnough {
			t.Fatalf("%v", one)
		}
	}
}
