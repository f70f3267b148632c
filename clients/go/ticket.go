package fireteam

import (
	"context"
	"sync"
	"time"

	pb "github.com/fireteam-dev/fireteam/clients/go/fireteamv1"
)

// defaultTicketTTL is used until the server has sent a TTL.
const defaultTicketTTL = 60 * time.Second

// Ticket of a party in a queue. It expires if it is neither watched nor kept alive by heartbeats. Safe for concurrent use.
type Ticket struct {
	client *Client
	token  []byte
	// TTL without a heartbeat or a watch.
	TTL time.Duration
	// IgnoredFields of the request, because the ruleset does not trust their source.
	IgnoredFields []string

	mutex  sync.Mutex
	status *pb.TicketStatus
}

func newTicket(client *Client, entered *pb.QueueEnterResponse) *Ticket {
	ttl := time.Duration(entered.GetExpiresInMs()) * time.Millisecond
	if ttl == 0 {
		ttl = defaultTicketTTL
	}
	return &Ticket{
		client:        client,
		token:         entered.GetTicketToken(),
		TTL:           ttl,
		IgnoredFields: entered.GetIgnoredFields(),
		status:        entered.GetStatus(),
	}
}

// ID returns the ticket id.
func (t *Ticket) ID() string { return t.Status().GetTicketId() }

// Status returns the latest status that this client has received.
func (t *Ticket) Status() *pb.TicketStatus {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.status
}

// Reference returns id and token, for requests of the stubs. Keep it secret.
func (t *Ticket) Reference() *pb.TicketReference {
	return &pb.TicketReference{TicketId: t.ID(), TicketToken: t.token}
}

func (t *Ticket) setStatus(status *pb.TicketStatus) (*pb.TicketStatus, error) {
	if status == nil {
		return nil, missingField("status")
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.status = status
	return status, nil
}

// Heartbeat extends the ticket's TTL and returns its status. Not needed during a watch; otherwise once per half of the TTL.
func (t *Ticket) Heartbeat(ctx context.Context) (*pb.TicketStatus, error) {
	return t.HeartbeatWithLatency(ctx, nil)
}

// HeartbeatWithLatency is a Heartbeat that renews the player's round trips by a token of MeasureBeacons. It may be sent during a watch.
func (t *Ticket) HeartbeatWithLatency(ctx context.Context, latencyToken []byte) (*pb.TicketStatus, error) {
	request := &pb.QueueHeartbeatRequest{Tickets: []*pb.TicketReference{t.Reference()}, LatencyToken: latencyToken}
	response, err := call(ctx, t.client, t.client.queue.Heartbeat, request)
	if err != nil {
		return nil, err
	}
	if len(response.GetStatuses()) != 1 {
		return nil, missingField("statuses")
	}
	return t.setStatus(response.GetStatuses()[0])
}

// Respond accepts or declines the proposed match for all players whom this client acts for.
func (t *Ticket) Respond(ctx context.Context, matchID string, accept bool) (*pb.TicketStatus, error) {
	request := &pb.QueueRespondRequest{TicketId: t.ID(), TicketToken: t.token, MatchId: matchID, Accept: accept}
	response, err := call(ctx, t.client, t.client.queue.Respond, request)
	if err != nil {
		return nil, err
	}
	return t.setStatus(response.GetStatus())
}

// Leave takes the party out of the queue or of its match, in each state.
func (t *Ticket) Leave(ctx context.Context) (*pb.TicketStatus, error) {
	request := &pb.QueueLeaveRequest{TicketId: t.ID(), TicketToken: t.token}
	response, err := call(ctx, t.client, t.client.queue.Leave, request)
	if err != nil {
		return nil, err
	}
	if ended := response.GetEnded(); ended != nil {
		return t.setStatus(ended)
	}
	return t.setStatus(response.GetMatched())
}

// EndMatch ends a match that no game server hosts. failed: it could not be hosted, and was not played.
func (t *Ticket) EndMatch(ctx context.Context, matchID string, failed bool) (pb.MatchEndReason, error) {
	request := &pb.QueueEndMatchRequest{MatchId: matchID, TicketToken: t.token, Failed: failed}
	response, err := call(ctx, t.client, t.client.queue.EndMatch, request)
	return response.GetEndReason(), err
}

// ReportResult reports the rank of each team, 1 is the best, of a match that a player hosts: each player reports. Or of one
// without a host, from the backend. The response's state says whether other sides must report too.
func (t *Ticket) ReportResult(ctx context.Context, matchID string, ranks map[uint32]int32) (*pb.ReportResultResponse, error) {
	request := &pb.ReportResultRequest{MatchId: matchID, TicketToken: t.token, TeamRanks: teamRanks(ranks)}
	return t.client.ReportResult(ctx, request)
}
