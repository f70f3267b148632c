// Command duel plays a match against a running server, as a game server and as two players in its queue. It prints each step, and
// `ok` at the end, or one line with the failure.
//
//	go run ./cmd/duel http://127.0.0.1:50051 11
//
// Set 11 is the shipped duel. For a server with authentication, set FIRETEAM_TOKEN to a token of a game server.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	fireteam "github.com/fireteam-dev/fireteam/clients/go"
	pb "github.com/fireteam-dev/fireteam/clients/go/fireteamv1"
)

// timeout of the whole duel.
const timeout = time.Minute

func main() {
	uri, setID := "http://127.0.0.1:50051", uint64(11)
	var err error
	if len(os.Args) > 1 {
		uri = os.Args[1]
	}
	if len(os.Args) > 2 {
		setID, err = strconv.ParseUint(os.Args[2], 10, 32)
	}
	if err == nil {
		err = run(uri, uint32(setID))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "failed:", err)
		os.Exit(1)
	}
	fmt.Println("ok")
}

func run(uri string, setID uint32) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var options []fireteam.Option
	if token := os.Getenv("FIRETEAM_TOKEN"); token != "" {
		options = append(options, fireteam.WithToken(token))
	}
	client, err := fireteam.Connect(uri, options...)
	if err != nil {
		return err
	}
	defer client.Close()
	return playDuel(ctx, client, setID, os.Stdout)
}

// ratings returns the rating of each user.
func ratings(ctx context.Context, client *fireteam.Client, setID uint32, users []string) ([]float64, error) {
	list, err := client.GetRatings(ctx, setID, users...)
	if err != nil {
		return nil, err
	}
	values := make([]float64, 0, len(list))
	for _, user := range list {
		values = append(values, user.GetRating().GetRating())
	}
	if len(values) != len(users) {
		return nil, errors.New("the server did not return a rating for each user")
	}
	return values, nil
}

// rank is 1 for the winning team, the first, and 2 for the other.
func rank(team uint32) int32 {
	if team == 0 {
		return 1
	}
	return 2
}

func describe(found *pb.MatchStatus) string {
	return fmt.Sprintf("team %d at %s", found.GetTeam(), found.GetAssignment().GetGameServer().GetConnectData())
}
