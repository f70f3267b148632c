package fireteam

import (
	"context"

	pb "github.com/fireteam-dev/fireteam/clients/go/fireteamv1"
	"google.golang.org/protobuf/proto"
)

// Advertisement of a session or a game server. It expires at the end of its TTL unless heartbeats extend it. Not safe for
// concurrent use.
type Advertisement struct {
	client *Client
	// published is the last whole request, with id and token, for a server that lost the advertisement.
	published *pb.MatchmakingUpdateAdvertisementRequest
	// Latest response to an update, with TTL, reservations and the ids of hosted matches.
	Latest *pb.MatchmakingUpdateAdvertisementResponse
}

// Advertise publishes a session or a game server. Leave id and token of the request empty.
func (c *Client) Advertise(ctx context.Context, request *pb.MatchmakingUpdateAdvertisementRequest) (*Advertisement, error) {
	published := proto.CloneOf(request)
	if published.GetIdempotencyKey() == "" {
		published.IdempotencyKey = idempotencyKey()
	}
	advertisement := &Advertisement{client: c, published: published}
	if err := advertisement.update(ctx, published); err != nil {
		return nil, err
	}
	return advertisement, nil
}

// ID returns the advertisement id, as searchers see it.
func (a *Advertisement) ID() string { return a.published.GetAdvertisementId() }

// Heartbeat extends the TTL. If the server no longer has the advertisement, it is published again.
func (a *Advertisement) Heartbeat(ctx context.Context) error {
	err := a.update(ctx, a.beat())
	if ReasonOf(err) == pb.ErrorReason_ERROR_REASON_ADVERTISEMENT_NOT_FOUND {
		return a.update(ctx, a.published)
	}
	return err
}

// ConfirmReservations says that these parties are on their way, so that their reservations no longer expire.
func (a *Advertisement) ConfirmReservations(ctx context.Context, reservationIDs ...string) error {
	request := a.beat()
	request.ConfirmedReservationIds = reservationIDs
	return a.update(ctx, request)
}

// HostHeartbeat confirms matches that the queue has given this game server, and keeps them alive during play. Without ids it
// lists the matches. Send the next one after NextBeatInMs of the response.
func (a *Advertisement) HostHeartbeat(ctx context.Context, matchIDs ...string) (*pb.QueueHostHeartbeatResponse, error) {
	request := &pb.QueueHostHeartbeatRequest{AdvertisementToken: a.published.GetAdvertisementToken()}
	for _, matchID := range matchIDs {
		request.Matches = append(request.Matches, &pb.HostedMatchBeat{MatchId: matchID})
	}
	return call(ctx, a.client, a.client.queue.HostHeartbeat, request)
}

// ReportResult reports the rank of each team, 1 is the best, of a match that this game server hosts. It ends the match.
func (a *Advertisement) ReportResult(ctx context.Context, matchID string, ranks map[uint32]int32) (*pb.ReportResultResponse, error) {
	token := a.published.GetAdvertisementToken()
	request := &pb.ReportResultRequest{MatchId: matchID, AdvertisementToken: token, TeamRanks: teamRanks(ranks)}
	return a.client.ReportResult(ctx, request)
}

// Delete deletes the advertisement.
func (a *Advertisement) Delete(ctx context.Context) error {
	request := &pb.MatchmakingDeleteAdvertisementRequest{
		AdvertisementId:    a.published.GetAdvertisementId(),
		AdvertisementToken: a.published.GetAdvertisementToken(),
	}
	_, err := call(ctx, a.client, a.client.matchmaking.DeleteAdvertisement, request)
	return err
}

// beat returns the shortest update: id, token, set and TTL.
func (a *Advertisement) beat() *pb.MatchmakingUpdateAdvertisementRequest {
	return &pb.MatchmakingUpdateAdvertisementRequest{
		AdvertisementId:    a.published.GetAdvertisementId(),
		AdvertisementToken: a.published.GetAdvertisementToken(),
		MatchmakingSetId:   a.published.MatchmakingSetId,
		TimeToLiveMs:       a.published.TimeToLiveMs,
	}
}

func (a *Advertisement) update(ctx context.Context, request *pb.MatchmakingUpdateAdvertisementRequest) error {
	response, err := call(ctx, a.client, a.client.matchmaking.UpdateAdvertisement, request)
	if err != nil {
		return err
	}
	a.published.AdvertisementId = response.GetAdvertisementId()
	a.published.AdvertisementToken = response.GetAdvertisementToken()
	a.Latest = response
	return nil
}
