package fireteam

import (
	"context"

	pb "github.com/fireteam-dev/fireteam/clients/go/fireteamv1"
)

// Search of one party for open sessions. Its limits relax with the time since the first search, which the server reads from the
// token that this handle keeps. Not safe for concurrent use.
type Search struct {
	client *Client
	// Request of the next search, for setting a ruleset hash or excluding sessions.
	Request *pb.MatchmakingSearchRequest
}

// NewSearch returns a search of a set for a party. It sends no request yet.
func (c *Client) NewSearch(setID uint32, party *pb.SessionCompositionData) *Search {
	return &Search{client: c, Request: &pb.MatchmakingSearchRequest{SessionComposition: party, MatchmakingSetId: &setID}}
}

// Search searches with the limits for the time waited so far.
func (s *Search) Search(ctx context.Context) (*pb.MatchmakingSearchResponse, error) {
	response, err := call(ctx, s.client, s.client.matchmaking.Search, s.Request)
	if err != nil {
		return nil, err
	}
	s.Request.SearchToken = response.GetSearchToken()
	return response, nil
}

// Reserve reserves seats for the whole party in one of the last candidates.
func (s *Search) Reserve(ctx context.Context, advertisementID string) (*Reservation, error) {
	request := &pb.MatchmakingReserveRequest{
		AdvertisementId:    advertisementID,
		SearchToken:        s.Request.GetSearchToken(),
		SessionComposition: s.Request.GetSessionComposition(),
		MatchmakingSetId:   s.Request.MatchmakingSetId,
		IdempotencyKey:     idempotencyKey(),
	}
	response, err := call(ctx, s.client, s.client.matchmaking.Reserve, request)
	if err != nil {
		return nil, err
	}
	if response.GetReservation() == nil {
		return nil, missingField("reservation")
	}
	return &Reservation{client: s.client, Reservation: response.GetReservation(), ConnectData: response.GetConnectData()}, nil
}

// Reservation of seats for a party. It expires unless the host confirms it.
type Reservation struct {
	*pb.Reservation
	client *Client
	// ConnectData is published by the host, such as its address.
	ConnectData []byte
}

// Release releases the seats.
func (r *Reservation) Release(ctx context.Context) error {
	request := &pb.MatchmakingReleaseRequest{ReservationId: r.GetReservationId(), ReservationToken: r.GetReservationToken()}
	_, err := call(ctx, r.client, r.client.matchmaking.Release, request)
	return err
}
