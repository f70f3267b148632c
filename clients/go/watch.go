package fireteam

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	pb "github.com/fireteam-dev/fireteam/clients/go/fireteamv1"
	"google.golang.org/grpc/codes"
)

// Watch returns the ticket's statuses: the current one, and again after each change. The watch keeps the ticket alive. A lost
// watch is opened again, at any server, with pauses of 0.1 to 5 s: a waiting ticket's until it was not heard of for its TTL, that
// of a match until the match ends.
//
// The sequence ends after the ticket has ended and no report of its result is awaited. It ends with an error if the context is
// done, if the client is closed, if the ticket has expired (ErrTicketExpired), or if the server refuses the watch (*Error). A caller
// that stops reading closes the stream.
func (t *Ticket) Watch(ctx context.Context) iter.Seq2[*pb.TicketStatus, error] {
	return func(yield func(*pb.TicketStatus, error) bool) {
		watch := watch{ticket: t, yield: yield, heardAt: time.Now()}
		for !watch.isOver {
			err := watch.follow(ctx)
			if watch.isOver {
				return
			}
			if err = watch.pauseAfter(ctx, err); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// watch is the state of one sequence over all its streams.
type watch struct {
	ticket      *Ticket
	yield       func(*pb.TicketStatus, error) bool
	resumeToken []byte
	// heardAt is the last time at which the server said that the ticket lives.
	heardAt time.Time
	// isOver: the ticket has ended, or the caller reads no more.
	isOver bool
	// isPlaying: the match goes on without a watch.
	isPlaying bool
	// isFresh: the stream has sent a status.
	isFresh bool
}

// follow opens a stream and reads it to its end.
func (w *watch) follow(ctx context.Context) error {
	client := w.ticket.client
	w.isFresh = false
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The server repeats a status twice per TTL, so a stream that is silent for longer is lost.
	silence := time.AfterFunc(w.ticket.TTL, func() { cancel(errSilent) })
	defer silence.Stop()
	authorized, sent, err := client.authorize(ctx)
	if err != nil {
		return err
	}
	reference := w.ticket.Reference()
	reference.ResumeToken = w.resumeToken
	stream, err := client.queue.Watch(authorized, &pb.QueueWatchRequest{Tickets: []*pb.TicketReference{reference}})
	if err != nil {
		return newError(err, nil)
	}
	for {
		update, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			// The server has none of the tickets any more.
			w.isOver = true
			return nil
		}
		if err != nil {
			failure := newError(err, stream.Trailer())
			if context.Cause(ctx) == errSilent || (!w.isFresh && client.hasOtherToken(ctx, failure, sent)) {
				failure.Code = codes.Unavailable
			}
			return failure
		}
		silence.Reset(w.ticket.TTL)
		if !w.take(update.GetStatus()) {
			return nil
		}
	}
}

var errSilent = errors.New("the watch was silent for the ticket's TTL")

// take records a status and gives it to the caller. Returns whether to read on.
func (w *watch) take(status *pb.TicketStatus) bool {
	if status == nil {
		return true
	}
	w.heardAt, w.isFresh = time.Now(), true
	w.resumeToken = status.GetResumeToken()
	w.isPlaying = status.GetState() == pb.TicketState_TICKET_STATE_MATCHED || awaitsReports(status)
	// Statuses are never nil here.
	_, _ = w.ticket.setStatus(status)
	if !w.yield(status, nil) || (status.GetState() == pb.TicketState_TICKET_STATE_ENDED && !awaitsReports(status)) {
		w.isOver = true
	}
	return !w.isOver
}

// awaitsReports: the players still report the result, and further statuses say what the result is.
func awaitsReports(status *pb.TicketStatus) bool {
	return status.GetFoundMatch().GetReports().GetState() == pb.ReportState_REPORT_STATE_WAITING
}

// pauseAfter waits before the next stream. Returns the error with which the sequence ends, if there is none.
func (w *watch) pauseAfter(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var retryAfter time.Duration
	var failure *Error
	if errors.As(err, &failure) {
		// A stream ends at its byte limit. The next one goes on at once, unless that sends no status either.
		if failure.is(pb.ErrorReason_ERROR_REASON_STREAM_LIMIT_REACHED) && w.isFresh {
			return nil
		}
		// The context is not done, so the client is closed.
		isClosed := failure.Code == codes.Canceled
		if isClosed || failure.isFinal() || failure.RetryForbidden {
			return failure
		}
		retryAfter = failure.RetryAfter
	}
	unheard := time.Since(w.heardAt)
	pause := w.ticket.client.retry.watchPause(unheard, retryAfter, jitter())
	if !w.isPlaying {
		left := w.ticket.TTL - unheard
		if left <= 0 {
			return fmt.Errorf("%w; the watch failed: %w", ErrTicketExpired, err)
		}
		pause = min(pause, left)
	}
	return sleep(ctx, pause)
}
