package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	fireteam "github.com/fireteam-dev/fireteam/clients/go"
	pb "github.com/fireteam-dev/fireteam/clients/go/fireteamv1"
)

const (
	// connectData of the game server. Players receive it with their match.
	connectData = "203.0.113.7:9000"
	// beatInterval is shorter than the server asks for, because the demonstration should not wait.
	beatInterval = 200 * time.Millisecond
)

// outcome of one player's game.
type outcome struct {
	user  string
	found *pb.MatchStatus
	err   error
}

// playDuel enters two players, accepts their match, confirms it as its game server, reports the result and compares the ratings.
func playDuel(ctx context.Context, client *fireteam.Client, setID uint32, log io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	run := rand.Text()[:8]
	users := []string{"ann-" + run, "bob-" + run}
	before, err := ratings(ctx, client, setID, users)
	if err != nil {
		return err
	}
	server, err := advertise(ctx, client, setID)
	if err != nil {
		return err
	}
	// Here players join their game server by a channel; in a game, over the network and with their credential.
	joined := make(chan string, len(users))
	outcomes := make(chan outcome, len(users))
	for _, user := range users {
		go func() {
			found, err := play(ctx, client, setID, user, joined, log)
			outcomes <- outcome{user, found, err}
		}()
	}
	hosted := make(chan error, 1)
	go func() { hosted <- host(ctx, server, joined, log) }()
	teams := map[string]uint32{}
	for range len(users) + 1 {
		select {
		case played := <-outcomes:
			if played.err != nil {
				return fmt.Errorf("%s: %w", played.user, played.err)
			}
			teams[played.user] = played.found.GetTeam()
		case err := <-hosted:
			if err != nil {
				return fmt.Errorf("game server: %w", err)
			}
		}
	}
	after, err := ratings(ctx, client, setID, users)
	if err != nil {
		return err
	}
	for i, user := range users {
		fmt.Fprintf(log, "%s: rating %.2f, then %.2f\n", user, before[i], after[i])
		if hasWon := rank(teams[user]) == 1; hasWon != (after[i] > before[i]) || after[i] == before[i] {
			return errors.New("the winner's rating must rise, and the other's must fall")
		}
	}
	return server.Delete(ctx)
}

// advertise publishes a game server with a seat for each player.
func advertise(ctx context.Context, client *fireteam.Client, setID uint32) (*fireteam.Advertisement, error) {
	seats := int32(2)
	return client.Advertise(ctx, &pb.MatchmakingUpdateAdvertisementRequest{
		MatchmakingSetId: &setID,
		Kind:             pb.AdvertisementKind_ADVERTISEMENT_KIND_GAME_SERVER,
		ConnectData:      []byte(connectData),
		SessionComposition: &pb.SessionCompositionData{
			PartySizeComposition:           []int32{1},
			MaxAllowedJoinReservationCount: &seats,
		},
	})
}

// play is the game of one player: queue, ready check, match. It returns the match when it has been played.
func play(
	ctx context.Context, client *fireteam.Client, setID uint32, user string, joined chan<- string, log io.Writer,
) (*pb.MatchStatus, error) {
	party := &pb.SessionCompositionData{Players: []*pb.PlayerData{{UserId: user}}}
	measured, err := client.MeasureBeacons(ctx)
	if err != nil {
		return nil, err
	}
	if measured != nil {
		party.LatencyToken = measured.Token
	}
	ticket, err := client.EnterQueue(ctx, &pb.QueueEnterRequest{MatchmakingSetId: &setID, SessionComposition: party})
	if err != nil {
		return nil, err
	}
	accepted, playing := "", ""
	for status, err := range ticket.Watch(ctx) {
		if err != nil {
			return nil, err
		}
		found := status.GetFoundMatch()
		switch status.GetState() {
		case pb.TicketState_TICKET_STATE_PROPOSED:
			// The status is repeated when the other player accepts.
			if accepted != found.GetMatchId() {
				accepted = found.GetMatchId()
				if _, err := ticket.Respond(ctx, accepted, true); err != nil {
					return nil, err
				}
				fmt.Fprintf(log, "%s: accepted\n", user)
			}
		case pb.TicketState_TICKET_STATE_MATCHED:
			if playing != found.GetMatchId() {
				playing = found.GetMatchId()
				fmt.Fprintf(log, "%s: joins %s\n", user, describe(found))
				joined <- user
			}
		case pb.TicketState_TICKET_STATE_ENDED:
			if status.GetEndReason() == pb.TicketEndReason_TICKET_END_REASON_PLAYED {
				return found, nil
			}
			return nil, fmt.Errorf("the ticket has ended: %s", status.GetEndReason())
		}
	}
	return nil, errors.New("the watch ended before the ticket")
}

// host is the game server: it confirms the first match that the queue gives it, waits for both players, and reports the result.
func host(ctx context.Context, server *fireteam.Advertisement, joined <-chan string, log io.Writer) error {
	var matchIDs []string
	players := 0
	for {
		beat, err := server.HostHeartbeat(ctx, matchIDs...)
		if err != nil {
			return err
		}
		matchIDs = beat.GetHostedMatchIds()
		matches := beat.GetMatches()
		if isPlaying := len(matches) == 1 && matches[0].GetState() == pb.HostedMatchState_HOSTED_MATCH_STATE_PLAYING; isPlaying && players == 2 {
			return report(ctx, server, matches[0].GetMatchId(), log)
		}
		select {
		case <-joined:
			players++
		case <-time.After(beatInterval):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// report reports that the first team has won, which ends the match.
func report(ctx context.Context, server *fireteam.Advertisement, matchID string, log io.Writer) error {
	result, err := server.ReportResult(ctx, matchID, map[uint32]int32{0: rank(0), 1: rank(1)})
	if err != nil {
		return err
	}
	if !result.GetRated() {
		return fmt.Errorf("the match was not rated: %s", result.GetUnrated())
	}
	fmt.Fprintf(log, "game server: reported, %d ratings changed\n", len(result.GetChanges()))
	return nil
}
