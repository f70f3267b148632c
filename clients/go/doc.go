// Package fireteam is a client of the fireteam matchmaking server: typed calls with deadlines and retries, and handles of
// tickets, searches, reservations and advertisements that keep their tokens.
//
// A party enters a queue and follows its ticket:
//
//	client, err := fireteam.Connect("http://127.0.0.1:50051")
//	ticket, err := client.EnterQueue(ctx, request)
//	for status, err := range ticket.Watch(ctx) {
//		// On TICKET_STATE_PROPOSED: ticket.Respond(ctx, status.FoundMatch.MatchId, true).
//	}
//
// Messages are in the package fireteamv1. A failed call returns an *Error, which has the server's reason.
package fireteam
