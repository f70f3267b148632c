package fireteam

import (
	"context"
	"crypto/rand"
	mathrand "math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	pb "github.com/fireteam-dev/fireteam/clients/go/fireteamv1"
)

const (
	// Beacons that are measured at once, and of which receipts are wanted; those that do not answer are replaced.
	beaconsAtOnce    = 8
	beaconsWantedMin = 8
	beaconsWantedMax = 16
	beaconsAskedMax  = 24
	// Conversations with one beacon: at most six, three if none is answered, and four if their two least round trips agree.
	conversationsMax               = 6
	conversationsToSilentBeaconMax = 3
	answersForEarlyEndMin          = 4
	// conversationInterval is the time between the starts of two conversations. Each sends two packets: at most 40 packets a second.
	conversationInterval = 50 * time.Millisecond
	// An answer counts in twice the longest round trip so far, in these bounds.
	answerTimeoutMin = 250 * time.Millisecond
	answerTimeoutMax = time.Second
	// measurementMax is the longest time of a measurement. It ends with the receipts that it has.
	measurementMax = 10 * time.Second
)

// LatencyToken has round trips to beacons, signed by the server.
type LatencyToken struct {
	// Token for SessionCompositionData.LatencyToken and Ticket.HeartbeatWithLatency.
	Token []byte
	// GoodFor is the time from the response for which the server accepts it. Measure again before.
	GoodFor time.Duration
	// Regions of beacons, with the round trips to them.
	Regions []*pb.RegionRoundTrip
	// Verdicts on the receipts.
	Verdicts []pb.ReceiptVerdict
}

// MeasureBeacons measures round trips to the nearest beacons by UDP, for at most ten seconds, and returns a token for searches,
// advertisements and tickets. The token is nil if the server has no beacons.
func (c *Client) MeasureBeacons(ctx context.Context) (*LatencyToken, error) {
	listed, err := call(ctx, c, c.latency.GetBeacons, &pb.GetBeaconsRequest{})
	if err != nil || len(listed.GetBeacons()) == 0 {
		return nil, err
	}
	receipts, err := measureBeacons(ctx, listed)
	if err != nil {
		return nil, err
	}
	// Also without a receipt: the server may know the round trip of the connection.
	report, err := call(ctx, c, c.latency.ReportTrips, &pb.ReportTripsRequest{Receipts: receipts})
	if err != nil {
		return nil, err
	}
	return &LatencyToken{
		Token:    report.GetLatencyToken(),
		GoodFor:  time.Duration(report.GetGoodForMs()) * time.Millisecond,
		Regions:  report.GetRegions(),
		Verdicts: report.GetVerdicts(),
	}, nil
}

// beaconTarget is a beacon with a usable endpoint.
type beaconTarget struct {
	id       uint32
	endpoint netip.AddrPort
	isNear   bool
}

// beaconTargets returns the beacons with a usable endpoint, each once: those that the server calls near first, otherwise in a random
// order. None without a binding.
func beaconTargets(listed *pb.GetBeaconsResponse) []beaconTarget {
	var targets []beaconTarget
	if len(listed.GetBinding()) != 16 {
		return targets
	}
	known := map[uint32]bool{}
	for _, beacon := range listed.GetBeacons() {
		address, ok := netip.AddrFromSlice(beacon.GetAddress())
		isUsable := ok && !address.IsUnspecified() && !address.IsMulticast() && 0 < beacon.GetPort() && beacon.GetPort() < 65_536
		if isUsable && !known[beacon.GetId()] {
			known[beacon.GetId()] = true
			endpoint := netip.AddrPortFrom(address.Unmap(), uint16(beacon.GetPort()))
			targets = append(targets, beaconTarget{id: beacon.GetId(), endpoint: endpoint, isNear: beacon.GetMeasureFirst()})
		}
	}
	mathrand.Shuffle(len(targets), func(i, j int) { targets[i], targets[j] = targets[j], targets[i] })
	slices.SortStableFunc(targets, func(a, b beaconTarget) int {
		switch {
		case a.isNear == b.isNear:
			return 0
		case a.isNear:
			return -1
		}
		return 1
	})
	return targets[:min(len(targets), beaconsAskedMax)]
}

// beaconMeasurement is one measurement of beacons.
type beaconMeasurement struct {
	binding []byte
	socket  *net.UDPConn

	mutex     sync.Mutex
	waiting   []beaconTarget
	wanted    int
	answered  int
	running   int
	nextStart time.Time
	receipts  [][]byte
	// packets of the beacons that are measured, by their endpoints.
	packets map[netip.AddrPort]chan []byte
}

// measureBeacons returns the receipts of the beacons. It ends early only with the context's error.
func measureBeacons(ctx context.Context, listed *pb.GetBeaconsResponse) ([][]byte, error) {
	socket, err := net.ListenUDP("udp", nil)
	if err != nil {
		return nil, err
	}
	wanted := min(max(int(listed.GetBeaconsWanted()), beaconsWantedMin), beaconsWantedMax)
	measurement := &beaconMeasurement{
		binding: listed.GetBinding(), socket: socket, waiting: beaconTargets(listed), wanted: wanted, packets: map[netip.AddrPort]chan []byte{},
	}
	limited, cancel := context.WithTimeout(ctx, measurementMax)
	defer cancel()
	var reader, workers sync.WaitGroup
	reader.Go(measurement.read)
	for range min(beaconsAtOnce, len(measurement.waiting)) {
		workers.Go(func() { measurement.measureWaiting(limited) })
	}
	workers.Wait()
	_ = socket.Close()
	reader.Wait()
	return measurement.receipts, ctx.Err()
}

// read hands packets to the conversations with their senders, until the socket is closed.
func (m *beaconMeasurement) read() {
	buffer := make([]byte, 2*packetBytes)
	for {
		length, from, err := m.socket.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return
		}
		m.mutex.Lock()
		packets := m.packets[netip.AddrPortFrom(from.Addr().Unmap(), from.Port())]
		m.mutex.Unlock()
		select {
		case packets <- slices.Clone(buffer[:length]):
		default: // No such beacon, or it sends faster than its packets are read.
		}
	}
}

// measureWaiting measures one beacon after the other until enough have answered.
func (m *beaconMeasurement) measureWaiting(ctx context.Context) {
	for ctx.Err() == nil {
		m.mutex.Lock()
		if len(m.waiting) == 0 || m.answered+m.running >= m.wanted {
			m.mutex.Unlock()
			return
		}
		target := m.waiting[0]
		m.waiting = m.waiting[1:]
		packets := make(chan []byte, 8)
		m.packets[target.endpoint] = packets
		m.running++
		m.mutex.Unlock()
		hasAnswered := m.measure(ctx, target, packets)
		m.mutex.Lock()
		delete(m.packets, target.endpoint)
		m.running--
		if hasAnswered {
			m.answered++
		}
		m.mutex.Unlock()
	}
}

// measure talks with a beacon until its least round trip is known. It reports whether the beacon gave a receipt.
func (m *beaconMeasurement) measure(ctx context.Context, target beaconTarget, packets <-chan []byte) bool {
	var nonce [8]byte
	_, _ = rand.Read(nonce[:])
	var roundTrips []time.Duration
	for sequence := uint16(1); sequence <= conversationsMax && !hasMeasuredEnough(roundTrips); sequence++ {
		isSilent := len(roundTrips) == 0 && sequence > conversationsToSilentBeaconMax
		if isSilent || m.waitForStart(ctx) != nil {
			break
		}
		timeout := answerTimeoutMax
		if len(roundTrips) > 0 {
			timeout = min(max(2*slices.Max(roundTrips), answerTimeoutMin), answerTimeoutMax)
		}
		talk := &conversation{beaconID: target.id, binding: m.binding, nonce: nonce, sequence: sequence}
		receipt, isBusy := m.converse(ctx, talk, target.endpoint, packets, timeout)
		if isBusy {
			break
		}
		if receipt != nil {
			roundTrips = append(roundTrips, receiptRoundTrip(receipt))
			m.mutex.Lock()
			m.receipts = append(m.receipts, receipt)
			m.mutex.Unlock()
		}
	}
	return len(roundTrips) > 0
}

// converse returns the receipt of one conversation, or nil if an answer is late.
func (m *beaconMeasurement) converse(
	ctx context.Context, talk *conversation, to netip.AddrPort, packets <-chan []byte, timeout time.Duration,
) (receipt []byte, isBusy bool) {
	// A network that is down is silence, as a beacon that is down.
	_, _ = m.socket.WriteToUDPAddrPort(talk.hello(), to)
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, false
		case <-timer.C:
			return nil, false
		case packet := <-packets:
			switch step, content := talk.handle(packet); step {
			case stepProof:
				_, _ = m.socket.WriteToUDPAddrPort(content, to)
				timer.Reset(timeout)
			case stepReceipt:
				return content, false
			case stepBusy:
				return nil, true
			case stepNone:
			}
		}
	}
}

// waitForStart waits until the next conversation may start.
func (m *beaconMeasurement) waitForStart(ctx context.Context) error {
	m.mutex.Lock()
	start := m.nextStart
	if now := time.Now(); start.Before(now) {
		start = now
	}
	m.nextStart = start.Add(conversationInterval)
	m.mutex.Unlock()
	return sleep(ctx, time.Until(start))
}
