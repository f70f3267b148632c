package fireteam_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	fireteam "github.com/fireteam-dev/fireteam/clients/go"
	pb "github.com/fireteam-dev/fireteam/clients/go/fireteamv1"
	"github.com/fireteam-dev/fireteam/clients/go/internal/testserver"
)

const beaconSet = 21

// beaconRuleset counts round trips only if a beacon has proven them, in searches and in the queue.
const beaconRuleset = `<Ruleset Name="Beacons" SetId="21">
  <SoftFilters><SoftFilter Attribute="latency" Weight="1" Min="0" Max="1000"/></SoftFilters>
  <Latency Trust="proven"/>
  <Teams Count="2" Size="1"/>
  <ExpansionConfigs><ExpansionConfig Name="reach" Type="latency"><Expansion ExpansionDurationMs="-1" Value="200"/></ExpansionConfig>
  </ExpansionConfigs>
  <Queue><Regions Mode="filter" Expansion="reach"/></Queue>
</Ruleset>`

// measuredParty is a party of one with a token of the server's beacon, which announces itself soon after the start.
func measuredParty(t *testing.T, ctx context.Context, client *fireteam.Client, user string) *pb.SessionCompositionData {
	t.Helper()
	var measured *fireteam.LatencyToken
	for measured == nil {
		var err error
		if measured, err = client.MeasureBeacons(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for _, verdict := range measured.Verdicts {
		if verdict != pb.ReceiptVerdict_RECEIPT_VERDICT_PROVEN {
			t.Fatalf("%v", measured.Verdicts)
		}
	}
	region := measured.Regions[0]
	if len(measured.Verdicts) == 0 || region.GetRegion() != "eu" || region.GetClaimed() || measured.GoodFor.Minutes() < 1 {
		t.Fatalf("%v %v %v", measured.Verdicts, measured.Regions, measured.GoodFor)
	}
	return &pb.SessionCompositionData{Players: []*pb.PlayerData{{UserId: user}}, LatencyToken: measured.Token}
}

func TestBeaconsProveTheRoundTripOfASearchAndOfATicket(t *testing.T) {
	rulesets := t.TempDir()
	if err := os.WriteFile(filepath.Join(rulesets, "beacons.xml"), []byte(beaconRuleset), 0o600); err != nil {
		t.Fatal(err)
	}
	server := testserver.StartWith(t, "--rulesets", rulesets, "--beacon-fleet-key-file", "fleet-key", "--beacon-listen", "127.0.0.1:0",
		"--beacon-id", "7", "--beacon-region", "eu", "--beacon-place", "50.1/8.7", "--beacon-announce-address", "127.0.0.1",
		"--observe-tcp=false")
	ctx, client := connect(t, server)

	set, seats := uint32(beaconSet), int32(2)
	host := measuredParty(t, ctx, client, "host")
	host.PartySizeComposition, host.MaxAllowedJoinReservationCount = []int32{1}, &seats
	request := &pb.MatchmakingUpdateAdvertisementRequest{MatchmakingSetId: &set, SessionComposition: host}
	if _, err := client.Advertise(ctx, request); err != nil {
		t.Fatal(err)
	}
	ann, bob := measuredParty(t, ctx, client, "ann"), measuredParty(t, ctx, client, "bob")
	stranger := &pb.SessionCompositionData{Players: []*pb.PlayerData{{UserId: "cid"}}}
	for _, party := range []*pb.SessionCompositionData{ann, stranger} {
		found, err := client.NewSearch(beaconSet, party).Search(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if isKnown := found.GetCandidates()[0].RoundTripMs != nil; isKnown != (party == ann) {
			t.Fatalf("%v: %v", party, found)
		}
	}

	var tickets []*fireteam.Ticket
	for _, party := range []*pb.SessionCompositionData{ann, bob} {
		ticket, err := client.EnterQueue(ctx, &pb.QueueEnterRequest{MatchmakingSetId: &set, SessionComposition: party})
		if err != nil {
			t.Fatal(err)
		}
		tickets = append(tickets, ticket)
	}
	for status, err := range tickets[0].Watch(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if status.GetState() == pb.TicketState_TICKET_STATE_MATCHED {
			if region := status.GetFoundMatch().GetRegion(); region != "eu" {
				t.Fatalf("region %q", region)
			}
			break
		}
	}
	if status, err := tickets[1].HeartbeatWithLatency(ctx, bob.GetLatencyToken()); err != nil ||
		status.GetState() != pb.TicketState_TICKET_STATE_MATCHED {
		t.Fatalf("%v %v", status, err)
	}
}
