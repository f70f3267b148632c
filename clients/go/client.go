package fireteam

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	pb "github.com/fireteam-dev/fireteam/clients/go/fireteamv1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// defaultAttemptTimeout is the deadline of one attempt of a call.
const defaultAttemptTimeout = 5 * time.Second

// TokenSource returns the caller's token, without "Bearer". It is called before each attempt, so it should keep the token until
// shortly before its expiry. A call that fails with UNAUTHENTICATED is repeated once if the source returns another token.
type TokenSource func(ctx context.Context) (string, error)

// Client of a fireteam server. Safe for concurrent use.
type Client struct {
	matchmaking    pb.MatchmakingServiceClient
	queue          pb.QueueServiceClient
	rating         pb.RatingServiceClient
	latency        pb.LatencyServiceClient
	token          TokenSource
	retry          RetryPolicy
	attemptTimeout time.Duration
	// close closes the connection, if Connect made it.
	close func() error
}

// Option changes a setting of a Client.
type Option func(*Client)

// WithToken sends the same token with each call.
func WithToken(token string) Option {
	return WithTokenSource(func(context.Context) (string, error) { return token, nil })
}

// WithTokenSource sends a token of the source with each call and each stream.
func WithTokenSource(source TokenSource) Option {
	return func(client *Client) { client.token = source }
}

// WithRetryPolicy replaces DefaultRetryPolicy.
func WithRetryPolicy(policy RetryPolicy) Option {
	return func(client *Client) { client.retry = policy }
}

// WithAttemptTimeout sets the deadline of each attempt. Default: 5 s.
func WithAttemptTimeout(timeout time.Duration) Option {
	return func(client *Client) { client.attemptTimeout = timeout }
}

// Connect returns a client of the server at uri, such as "http://127.0.0.1:50051", or "https://match.example:443" with the
// system's certificates. It connects with the first call, and again after each outage. Close it at the end.
func Connect(uri string, options ...Option) (*Client, error) {
	parsed, err := url.Parse(uri)
	if err != nil || parsed.Host == "" || !slices.Contains([]string{"http", "https"}, parsed.Scheme) {
		return nil, fmt.Errorf("server `%s` is not a URI; use the form http://127.0.0.1:50051", uri)
	}
	transport := insecure.NewCredentials()
	if parsed.Scheme == "https" {
		transport = credentials.NewTLS(nil)
	}
	// The client's own policy decides when to try again; so the connection waits no longer than that.
	reconnect := backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second}
	connection, err := grpc.NewClient(parsed.Host,
		grpc.WithTransportCredentials(transport),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: 5 * time.Second}),
		// Routers drop idle connections after some minutes.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second, PermitWithoutStream: true}),
	)
	if err != nil {
		return nil, fmt.Errorf("server `%s` cannot be used: %w", uri, err)
	}
	client := NewClient(connection, options...)
	client.close = connection.Close
	return client, nil
}

// NewClient uses a connection of the caller, such as one with its own TLS settings or load balancer.
func NewClient(connection grpc.ClientConnInterface, options ...Option) *Client {
	client := &Client{
		matchmaking:    pb.NewMatchmakingServiceClient(connection),
		queue:          pb.NewQueueServiceClient(connection),
		rating:         pb.NewRatingServiceClient(connection),
		latency:        pb.NewLatencyServiceClient(connection),
		retry:          DefaultRetryPolicy,
		attemptTimeout: defaultAttemptTimeout,
		close:          func() error { return nil },
	}
	for _, option := range options {
		option(client)
	}
	return client
}

// Close closes the connection of Connect. Watches end.
func (c *Client) Close() error { return c.close() }

// Matchmaking returns the generated stub. It adds no token and no idempotency key, and never retries.
func (c *Client) Matchmaking() pb.MatchmakingServiceClient { return c.matchmaking }

// Queue returns the generated stub, as Matchmaking does.
func (c *Client) Queue() pb.QueueServiceClient { return c.queue }

// Ratings returns the generated stub, as Matchmaking does.
func (c *Client) Ratings() pb.RatingServiceClient { return c.rating }

// Latency returns the generated stub, as Matchmaking does.
func (c *Client) Latency() pb.LatencyServiceClient { return c.latency }

// EnterQueue enters a party into a queue and returns its ticket. Adds an idempotency key to a request without one.
func (c *Client) EnterQueue(ctx context.Context, request *pb.QueueEnterRequest) (*Ticket, error) {
	if request.GetIdempotencyKey() == "" {
		request = proto.CloneOf(request)
		request.IdempotencyKey = idempotencyKey()
	}
	entered, err := call(ctx, c, c.queue.Enter, request)
	if err != nil {
		return nil, err
	}
	if entered.GetStatus() == nil {
		return nil, missingField("status")
	}
	return newTicket(c, entered), nil
}

// GetRatings returns the ratings of users in a set's pool, in the order of userIDs.
func (c *Client) GetRatings(ctx context.Context, setID uint32, userIDs ...string) ([]*pb.UserRating, error) {
	request := &pb.GetRatingsRequest{MatchmakingSetId: &setID, UserIds: userIDs}
	response, err := call(ctx, c, c.rating.GetRatings, request)
	return response.GetRatings(), err
}

// ReportResult reports the result of a match. The request has the proof of permission. Ticket and Advertisement have the same
// call with their own proof.
func (c *Client) ReportResult(ctx context.Context, request *pb.ReportResultRequest) (*pb.ReportResultResponse, error) {
	return call(ctx, c, c.rating.ReportResult, request)
}

// teamRanks converts the rank of each team, 1 is the best, in the order of teams.
func teamRanks(ranks map[uint32]int32) []*pb.TeamRank {
	list := make([]*pb.TeamRank, 0, len(ranks))
	for team, rank := range ranks {
		list = append(list, &pb.TeamRank{Team: team, Rank: rank})
	}
	slices.SortFunc(list, func(a, b *pb.TeamRank) int { return int(a.Team) - int(b.Team) })
	return list
}

func missingField(name string) error {
	return fmt.Errorf("response lacks the field `%s`; use a client that matches the server's version", name)
}

// authorize adds the token to the context's metadata, and returns it.
func (c *Client) authorize(ctx context.Context) (context.Context, string, error) {
	if c.token == nil {
		return ctx, "", nil
	}
	token, err := c.token(ctx)
	if err != nil {
		return ctx, "", fmt.Errorf("no token available: %w", err)
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token), token, nil
}

// hasOtherToken: the call that failed can be repeated with another token than the one that it sent.
func (c *Client) hasOtherToken(ctx context.Context, failure *Error, sent string) bool {
	if failure.Code != codes.Unauthenticated || c.token == nil {
		return false
	}
	token, err := c.token(ctx)
	return err == nil && token != sent
}

// call makes a call, and repeats it as the client's RetryPolicy allows.
func call[Request, Response any](
	ctx context.Context, c *Client, rpc func(context.Context, Request, ...grpc.CallOption) (Response, error), request Request,
) (Response, error) {
	var none Response
	for attempt, renewed := 1, false; ; {
		response, failure, sent, err := attemptCall(ctx, c, rpc, request)
		if err != nil {
			return none, err
		}
		if failure == nil {
			return response, nil
		}
		if !renewed && c.hasOtherToken(ctx, failure, sent) {
			renewed = true
			continue
		}
		pause, again := c.retry.pause(attempt, failure, jitter())
		if ctx.Err() != nil {
			return none, errors.Join(ctx.Err(), failure)
		}
		if !again {
			return none, failure
		}
		if err := sleep(ctx, pause); err != nil {
			return none, errors.Join(err, failure)
		}
		attempt++
	}
}

// attemptCall makes one attempt. The result is a response, the call's failure, or an error without a call.
func attemptCall[Request, Response any](
	ctx context.Context, c *Client, rpc func(context.Context, Request, ...grpc.CallOption) (Response, error), request Request,
) (response Response, failure *Error, sent string, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.attemptTimeout)
	defer cancel()
	ctx, sent, err = c.authorize(ctx)
	if err != nil {
		return response, nil, sent, err
	}
	var trailer metadata.MD
	response, callError := rpc(ctx, request, grpc.Trailer(&trailer))
	if callError != nil {
		failure = newError(callError, trailer)
	}
	return response, failure, sent, nil
}
