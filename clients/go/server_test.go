package fireteam_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"time"

	fireteam "github.com/fireteam-dev/fireteam/clients/go"
	pb "github.com/fireteam-dev/fireteam/clients/go/fireteamv1"
	"github.com/fireteam-dev/fireteam/clients/go/internal/testserver"
	"google.golang.org/grpc/codes"
)

const (
	// duelSet has a ready check and game servers; rankedSet has a ready check with cooldowns and no hosts; openSet is searched.
	duelSet, rankedSet, openSet = 11, 3, 1
	testTimeout                 = time.Minute
)

// connect returns a client, and a context that ends with the test or its time.
func connect(t *testing.T, server *testserver.Server) (context.Context, *fireteam.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	client, err := fireteam.Connect(server.URI)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return ctx, client
}

func enterRequest(setID uint32, user string) *pb.QueueEnterRequest {
	skill := float64(25)
	players := []*pb.PlayerData{{UserId: user, Skill: &skill}}
	return &pb.QueueEnterRequest{MatchmakingSetId: &setID, SessionComposition: &pb.SessionCompositionData{Players: players}}
}

func enter(t *testing.T, ctx context.Context, client *fireteam.Client, setID uint32, user string) *fireteam.Ticket {
	t.Helper()
	ticket, err := client.EnterQueue(ctx, enterRequest(setID, user))
	if err != nil {
		t.Fatal(err)
	}
	return ticket
}

// nextIn reads statuses until one has the state.
func nextIn(t *testing.T, next func() (*pb.TicketStatus, error, bool), state pb.TicketState) *pb.TicketStatus {
	t.Helper()
	for {
		status, err, ok := next()
		if err != nil || !ok {
			t.Fatalf("the watch ended before %s: %v", state, err)
		}
		if status.GetState() == state {
			return status
		}
	}
}

func TestWatchGoesOnAfterTheServerIsKilledAndStartedAgain(t *testing.T) {
	server := testserver.Start(t)
	ctx, client := connect(t, server)
	ann := enter(t, ctx, client, duelSet, "ann")
	annNext, stop := iter.Pull2(ann.Watch(ctx))
	defer stop()
	nextIn(t, annNext, pb.TicketState_TICKET_STATE_WAITING)

	server.Kill()
	if _, err := client.GetRatings(ctx, duelSet, "ann"); errorCode(err) != codes.Unavailable {
		t.Fatalf("a call to a killed server must be UNAVAILABLE: %v", err)
	}
	server.StartAgain()

	bob := enter(t, ctx, client, duelSet, "bob")
	bobNext, stopBob := iter.Pull2(bob.Watch(ctx))
	defer stopBob()
	seats := int32(2)
	set := uint32(duelSet)
	advertisement, err := client.Advertise(ctx, &pb.MatchmakingUpdateAdvertisementRequest{
		MatchmakingSetId:   &set,
		Kind:               pb.AdvertisementKind_ADVERTISEMENT_KIND_GAME_SERVER,
		SessionComposition: &pb.SessionCompositionData{PartySizeComposition: []int32{1}, MaxAllowedJoinReservationCount: &seats},
	})
	if err != nil {
		t.Fatal(err)
	}
	for ticket, next := range map[*fireteam.Ticket]func() (*pb.TicketStatus, error, bool){ann: annNext, bob: bobNext} {
		matchID := nextIn(t, next, pb.TicketState_TICKET_STATE_PROPOSED).GetFoundMatch().GetMatchId()
		if _, err := ticket.Respond(ctx, matchID, true); err != nil {
			t.Fatal(err)
		}
	}
	matchID := ann.Status().GetFoundMatch().GetMatchId()
	confirm(t, ctx, advertisement, matchID)
	nextIn(t, annNext, pb.TicketState_TICKET_STATE_MATCHED)
	if _, err := advertisement.ReportResult(ctx, matchID, map[uint32]int32{0: 1, 1: 1}); err != nil {
		t.Fatal(err)
	}
	nextIn(t, annNext, pb.TicketState_TICKET_STATE_ENDED)
	if _, err, more := annNext(); more || err != nil {
		t.Fatalf("the watch must end with the ticket: %v", err)
	}
}

// confirm sends heartbeats until the match is played.
func confirm(t *testing.T, ctx context.Context, advertisement *fireteam.Advertisement, matchID string) {
	t.Helper()
	for {
		beat, err := advertisement.HostHeartbeat(ctx, matchID)
		if err != nil {
			t.Fatal(err)
		}
		if beat.GetMatches()[0].GetState() == pb.HostedMatchState_HOSTED_MATCH_STATE_PLAYING {
			return
		}
	}
}

func errorCode(err error) codes.Code {
	var failure *fireteam.Error
	if !errors.As(err, &failure) {
		return codes.OK
	}
	return failure.Code
}

func TestErrorsHaveTheReasonOfTheServer(t *testing.T) {
	server := testserver.Start(t)
	ctx, client := connect(t, server)
	ann := enter(t, ctx, client, rankedSet, "ann")

	_, err := client.EnterQueue(ctx, enterRequest(rankedSet, "ann"))
	var failure *fireteam.Error
	if !errors.As(err, &failure) || failure.Code != codes.AlreadyExists || failure.Reason != "ALREADY_QUEUED" {
		t.Fatalf("a second ticket: %v", err)
	}
	if failure.Metadata["player"] != "0" || fireteam.ReasonOf(err) != pb.ErrorReason_ERROR_REASON_ALREADY_QUEUED {
		t.Fatalf("details of the reason: %v", failure.Metadata)
	}

	_, err = client.EnterQueue(ctx, enterRequest(rankedSet, strings.Repeat("a", 10_000)))
	if !errors.As(err, &failure) || failure.Reason != "INVALID_REQUEST" || len(failure.Fields) == 0 {
		t.Fatalf("an invalid request: %v", err)
	}
	if field := failure.Fields[0].Field; field != "session_composition.players[0].user_id" {
		t.Fatalf("the invalid field: %s", field)
	}

	bob := enter(t, ctx, client, rankedSet, "bob")
	next, stop := iter.Pull2(bob.Watch(ctx))
	defer stop()
	matchID := nextIn(t, next, pb.TicketState_TICKET_STATE_PROPOSED).GetFoundMatch().GetMatchId()
	if _, err := ann.Respond(ctx, matchID, false); err != nil {
		t.Fatal(err)
	}
	_, err = client.EnterQueue(ctx, enterRequest(rankedSet, "ann"))
	if !errors.As(err, &failure) || failure.Reason != "QUEUE_COOLDOWN" || failure.RetryAfter < time.Second {
		t.Fatalf("an entry during the cooldown: %v, after %v", err, failure.RetryAfter)
	}
	if _, err := bob.Leave(ctx); err != nil || bob.Status().GetState() != pb.TicketState_TICKET_STATE_ENDED {
		t.Fatalf("leave: %v, %v", err, bob.Status())
	}
}

func TestSearchFindsASessionAndReservesItsSeats(t *testing.T) {
	server := testserver.Start(t)
	ctx, client := connect(t, server)
	set, seats, skill := uint32(openSet), int32(3), float64(25)
	party := func(user string) *pb.SessionCompositionData {
		return &pb.SessionCompositionData{Players: []*pb.PlayerData{{UserId: user, Skill: &skill}}}
	}
	session := party("host")
	session.MaxAllowedJoinReservationCount = &seats
	advertisement, err := client.Advertise(ctx, &pb.MatchmakingUpdateAdvertisementRequest{
		MatchmakingSetId: &set, SessionComposition: session, ConnectData: []byte("198.51.100.4:9000"),
	})
	if err != nil {
		t.Fatal(err)
	}
	search := client.NewSearch(openSet, party("guest"))
	found, err := search.Search(ctx)
	if err != nil || len(found.GetCandidates()) != 1 {
		t.Fatalf("candidates: %v, %v", found, err)
	}
	reservation, err := search.Reserve(ctx, found.GetCandidates()[0].GetAdvertisementId())
	if err != nil || reservation.GetSeats() != 1 || string(reservation.ConnectData) != "198.51.100.4:9000" {
		t.Fatalf("reservation: %v, %v", reservation, err)
	}
	if err := advertisement.Heartbeat(ctx); err != nil || len(advertisement.Latest.GetReservations()) != 1 {
		t.Fatalf("the host's reservations: %v, %v", advertisement.Latest.GetReservations(), err)
	}
	if err := reservation.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if err := advertisement.Heartbeat(ctx); err != nil || len(advertisement.Latest.GetReservations()) != 0 {
		t.Fatalf("the host's reservations after the release: %v, %v", advertisement.Latest.GetReservations(), err)
	}
	if err := advertisement.Delete(ctx); err != nil {
		t.Fatal(err)
	}
	_, err = search.Reserve(ctx, advertisement.ID())
	if errorCode(err) == codes.OK {
		t.Fatal("a deleted session must refuse the reservation")
	}
}
