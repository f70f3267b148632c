package fireteam_test

import (
	"context"
	"errors"
	"iter"
	"net"
	"sync"
	"testing"
	"time"

	fireteam "github.com/fireteam-dev/fireteam/clients/go"
	pb "github.com/fireteam-dev/fireteam/clients/go/fireteamv1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// scriptedQueue is a queue service on a socket of its own that fails as the test says.
type scriptedQueue struct {
	pb.UnimplementedQueueServiceServer
	ttl time.Duration
	// enterErrors are the results of the first calls of Enter.
	enterErrors []error
	// watch serves the streams.
	watch func(request *pb.QueueWatchRequest, number int, stream grpc.ServerStreamingServer[pb.QueueWatchResponse]) error

	mutex   sync.Mutex
	keys    []string
	tokens  []string
	watches int
}

func (q *scriptedQueue) Enter(ctx context.Context, request *pb.QueueEnterRequest) (*pb.QueueEnterResponse, error) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	q.keys = append(q.keys, request.GetIdempotencyKey())
	received, _ := metadata.FromIncomingContext(ctx)
	q.tokens = append(q.tokens, received.Get("authorization")...)
	if call := len(q.keys); call <= len(q.enterErrors) {
		return nil, q.enterErrors[call-1]
	}
	return &pb.QueueEnterResponse{Status: waiting(), TicketToken: []byte("token"), ExpiresInMs: uint64(q.ttl.Milliseconds())}, nil
}

func (q *scriptedQueue) Watch(request *pb.QueueWatchRequest, stream grpc.ServerStreamingServer[pb.QueueWatchResponse]) error {
	q.mutex.Lock()
	q.watches++
	number := q.watches
	q.mutex.Unlock()
	return q.watch(request, number, stream)
}

func waiting() *pb.TicketStatus {
	return &pb.TicketStatus{TicketId: "t", State: pb.TicketState_TICKET_STATE_WAITING, ResumeToken: []byte("resume")}
}

// withDetails returns an error with details.
func withDetails(code codes.Code, reason string, delay time.Duration) error {
	described, err := status.New(code, "scripted").WithDetails(
		&errdetails.ErrorInfo{Reason: reason, Domain: "fireteam"}, &errdetails.RetryInfo{RetryDelay: durationpb.New(delay)})
	if err != nil {
		panic(err)
	}
	return described.Err()
}

// serve runs the queue until the test ends, and returns a client of it.
func serve(t *testing.T, queue *scriptedQueue, options ...fireteam.Option) (context.Context, *fireteam.Client) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterQueueServiceServer(server, queue)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	client, err := fireteam.Connect("http://"+listener.Addr().String(), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx, client
}

func TestEnterIsRepeatedWithTheSameIdempotencyKey(t *testing.T) {
	unavailable := withDetails(codes.Unavailable, "STORE_UNAVAILABLE", time.Millisecond)
	queue := &scriptedQueue{ttl: time.Minute, enterErrors: []error{unavailable, unavailable}}
	ctx, client := serve(t, queue)
	enter(t, ctx, client, duelSet, "ann")
	if len(queue.keys) != 3 || len(queue.keys[0]) != 32 || queue.keys[0] != queue.keys[1] || queue.keys[1] != queue.keys[2] {
		t.Fatalf("keys of the attempts: %q", queue.keys)
	}
}

func TestCallIsNotRepeatedIfTheServerAsksForMoreThanTheLongestPause(t *testing.T) {
	queue := &scriptedQueue{enterErrors: []error{withDetails(codes.Unavailable, "DRAINING", time.Hour)}}
	ctx, client := serve(t, queue)
	_, err := client.EnterQueue(ctx, enterRequest(duelSet, "ann"))
	var failure *fireteam.Error
	if !errors.As(err, &failure) || failure.RetryAfter != time.Hour || failure.Reason != "DRAINING" || len(queue.keys) != 1 {
		t.Fatalf("%v after %d attempts", err, len(queue.keys))
	}
}

func TestCallIsRepeatedOnceWithAnotherToken(t *testing.T) {
	expired := withDetails(codes.Unauthenticated, "CREDENTIALS_EXPIRED", 0)
	queue := &scriptedQueue{ttl: time.Minute, enterErrors: []error{expired, expired}}
	issued := 0
	source := func(context.Context) (string, error) { issued++; return string(rune('a' + issued)), nil }
	ctx, client := serve(t, queue, fireteam.WithTokenSource(source))
	if _, err := client.EnterQueue(ctx, enterRequest(duelSet, "ann")); errorCode(err) != codes.Unauthenticated {
		t.Fatal(err)
	}
	if len(queue.tokens) != 2 || queue.tokens[0] == queue.tokens[1] {
		t.Fatalf("tokens of the attempts: %q", queue.tokens)
	}
}

func TestWatchEndsWhenTheTicketHasExpiredDuringAnOutage(t *testing.T) {
	queue := &scriptedQueue{ttl: 3 * time.Second}
	queue.watch = func(_ *pb.QueueWatchRequest, number int, stream grpc.ServerStreamingServer[pb.QueueWatchResponse]) error {
		if number == 1 {
			_ = stream.Send(&pb.QueueWatchResponse{Status: waiting()})
		}
		return status.Error(codes.Unavailable, "scripted")
	}
	ctx, client := serve(t, queue)
	ticket := enter(t, ctx, client, duelSet, "ann")
	began, last := time.Now(), error(nil)
	for _, err := range ticket.Watch(ctx) {
		last = err
	}
	if took := time.Since(began); !errors.Is(last, fireteam.ErrTicketExpired) || took < queue.ttl || queue.watches < 2 {
		t.Fatalf("%v after %v and %d streams", last, took, queue.watches)
	}
}

func TestWatchResumesAfterTheLastStatus(t *testing.T) {
	queue := &scriptedQueue{ttl: time.Minute}
	var resumed []string
	queue.watch = func(request *pb.QueueWatchRequest, number int, stream grpc.ServerStreamingServer[pb.QueueWatchResponse]) error {
		resumed = append(resumed, string(request.GetTickets()[0].GetResumeToken()))
		if number == 1 {
			_ = stream.Send(&pb.QueueWatchResponse{Status: waiting()})
			return withDetails(codes.ResourceExhausted, "STREAM_LIMIT_REACHED", 0)
		}
		return stream.Send(&pb.QueueWatchResponse{Status: &pb.TicketStatus{TicketId: "t", State: pb.TicketState_TICKET_STATE_ENDED}})
	}
	ctx, client := serve(t, queue)
	var states []pb.TicketState
	for status, err := range enter(t, ctx, client, duelSet, "ann").Watch(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		states = append(states, status.GetState())
	}
	if len(states) != 2 || len(resumed) != 2 || resumed[0] != "" || resumed[1] != "resume" {
		t.Fatalf("states %v, resume tokens %q", states, resumed)
	}
}

func TestWatchOfAMatchThatIsSilentForTheTTLIsOpenedAgain(t *testing.T) {
	queue := &scriptedQueue{ttl: 200 * time.Millisecond}
	queue.watch = func(_ *pb.QueueWatchRequest, number int, stream grpc.ServerStreamingServer[pb.QueueWatchResponse]) error {
		state := pb.TicketState_TICKET_STATE_MATCHED
		if number == 2 {
			state = pb.TicketState_TICKET_STATE_ENDED
		}
		_ = stream.Send(&pb.QueueWatchResponse{Status: &pb.TicketStatus{TicketId: "t", State: state}})
		<-stream.Context().Done()
		return stream.Context().Err()
	}
	ctx, client := serve(t, queue)
	var states []pb.TicketState
	for status, err := range enter(t, ctx, client, duelSet, "ann").Watch(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		states = append(states, status.GetState())
	}
	if queue.watches != 2 || len(states) != 2 || states[1] != pb.TicketState_TICKET_STATE_ENDED {
		t.Fatalf("states %v in %d streams", states, queue.watches)
	}
}

func TestWatchOfAnUnknownTicketFailsAtOnce(t *testing.T) {
	queue := &scriptedQueue{ttl: time.Minute}
	queue.watch = func(*pb.QueueWatchRequest, int, grpc.ServerStreamingServer[pb.QueueWatchResponse]) error {
		return withDetails(codes.NotFound, "TICKET_NOT_FOUND", 0)
	}
	ctx, client := serve(t, queue)
	for _, err := range enter(t, ctx, client, duelSet, "ann").Watch(ctx) {
		if fireteam.ReasonOf(err) != pb.ErrorReason_ERROR_REASON_TICKET_NOT_FOUND {
			t.Fatal(err)
		}
	}
	if queue.watches != 1 {
		t.Fatalf("%d streams", queue.watches)
	}
}

// A stream is closed by a caller that stops reading, and by one whose context ends.
func TestWatchThatIsLeftClosesItsStream(t *testing.T) {
	closed := make(chan struct{}, 2)
	queue := &scriptedQueue{ttl: time.Minute}
	queue.watch = func(_ *pb.QueueWatchRequest, _ int, stream grpc.ServerStreamingServer[pb.QueueWatchResponse]) error {
		_ = stream.Send(&pb.QueueWatchResponse{Status: waiting()})
		<-stream.Context().Done()
		closed <- struct{}{}
		return stream.Context().Err()
	}
	ctx, client := serve(t, queue)
	ticket := enter(t, ctx, client, duelSet, "ann")
	for range ticket.Watch(ctx) {
		break
	}
	awaitClosed(t, closed)

	cancelled, cancel := context.WithCancel(ctx)
	next, stop := iter.Pull2(ticket.Watch(cancelled))
	defer stop()
	if _, err, _ := next(); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err, _ := next(); !errors.Is(err, context.Canceled) {
		t.Fatalf("a cancelled watch ends with the context's error: %v", err)
	}
	awaitClosed(t, closed)
}

func TestWatchEndsWhenTheClientIsClosed(t *testing.T) {
	queue := &scriptedQueue{ttl: time.Minute}
	queue.watch = func(_ *pb.QueueWatchRequest, _ int, stream grpc.ServerStreamingServer[pb.QueueWatchResponse]) error {
		_ = stream.Send(&pb.QueueWatchResponse{Status: waiting()})
		<-stream.Context().Done()
		return stream.Context().Err()
	}
	ctx, client := serve(t, queue)
	next, stop := iter.Pull2(enter(t, ctx, client, duelSet, "ann").Watch(ctx))
	defer stop()
	if _, err, _ := next(); err != nil {
		t.Fatal(err)
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err, _ := next(); errorCode(err) != codes.Canceled {
		t.Fatalf("the watch of a closed client: %v", err)
	}
	if _, _, more := next(); more || queue.watches != 1 {
		t.Fatalf("the watch goes on, with %d streams", queue.watches)
	}
}

func awaitClosed(t *testing.T, closed <-chan struct{}) {
	t.Helper()
	select {
	case <-closed:
	case <-time.After(testTimeout):
		t.Fatal("the stream is still open")
	}
}

func TestConnectNamesTheRightForm(t *testing.T) {
	if _, err := fireteam.Connect("127.0.0.1:50051"); err == nil || err.Error() != "server `127.0.0.1:50051` is not a URI; use the form http://127.0.0.1:50051" {
		t.Fatal(err)
	}
}
