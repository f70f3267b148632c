package fireteam

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	pb "github.com/fireteam-dev/fireteam/clients/go/fireteamv1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// pushbackTrailer has the server's retry delay in milliseconds; a negative value forbids a retry.
const pushbackTrailer = "grpc-retry-pushback-ms"

// ErrTicketExpired ends a watch whose waiting ticket was not heard of for its TTL. Enter the queue again.
var ErrTicketExpired = errors.New("ticket was not heard of for its TTL and has expired; enter the queue again")

// Error of a failed call, with the details that the server sent. Get it by errors.As.
type Error struct {
	// Code is the gRPC status code.
	Code codes.Code
	// Message is for people.
	Message string
	// Reason is a value of fireteamv1.ErrorReason without its prefix, such as "SEATS_TAKEN". Empty if the call failed on the way to
	// the server.
	Reason string
	// Metadata has details of the reason, such as the current ruleset hash.
	Metadata map[string]string
	// Fields are the invalid fields of the request.
	Fields []FieldViolation
	// RetryAfter is the server's retry delay; 0 if it gave none.
	RetryAfter time.Duration
	// RetryForbidden: the server forbids a retry.
	RetryForbidden bool

	status *status.Status
}

// FieldViolation is an invalid field of a request.
type FieldViolation struct {
	// Field is the path in the request, such as "session_composition.players[1].skill".
	Field string
	// Description of a valid value.
	Description string
}

// Error returns the code, the message and the invalid fields.
func (e *Error) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s: %s", e.Code, e.Message)
	for _, violation := range e.Fields {
		fmt.Fprintf(&text, "; %s: %s", violation.Field, violation.Description)
	}
	return text.String()
}

// GRPCStatus returns the status as it was received.
func (e *Error) GRPCStatus() *status.Status { return e.status }

// is: the server gave this reason.
func (e *Error) is(reason pb.ErrorReason) bool {
	return e.Reason == strings.TrimPrefix(reason.String(), "ERROR_REASON_")
}

// ReasonOf returns the server's reason for a failed call. ERROR_REASON_UNSPECIFIED if err has none that this client knows.
func ReasonOf(err error) pb.ErrorReason {
	var failure *Error
	if !errors.As(err, &failure) {
		return pb.ErrorReason_ERROR_REASON_UNSPECIFIED
	}
	return pb.ErrorReason(pb.ErrorReason_value["ERROR_REASON_"+failure.Reason])
}

// newError converts the error of a call. trailer may have the retry delay.
func newError(err error, trailer metadata.MD) *Error {
	received := status.Convert(err)
	failure := &Error{Code: received.Code(), Message: received.Message(), status: received}
	for _, detail := range received.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			failure.Reason, failure.Metadata = detail.GetReason(), detail.GetMetadata()
		case *errdetails.RetryInfo:
			failure.RetryAfter = max(failure.RetryAfter, detail.GetRetryDelay().AsDuration())
		case *errdetails.BadRequest:
			for _, violation := range detail.GetFieldViolations() {
				failure.Fields = append(failure.Fields, FieldViolation{violation.GetField(), violation.GetDescription()})
			}
		}
	}
	if values := trailer.Get(pushbackTrailer); len(values) > 0 {
		// gRPC proposal A6: a negative or invalid pushback forbids a retry.
		delayMs, err := strconv.ParseUint(values[0], 10, 31)
		failure.RetryForbidden = err != nil
		failure.RetryAfter = max(failure.RetryAfter, time.Duration(delayMs)*time.Millisecond)
	}
	return failure
}

// isFinal: no later call of this client can succeed either, because the request is invalid or the caller may not make it.
func (e *Error) isFinal() bool {
	switch e.Code {
	case codes.InvalidArgument, codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented:
		return true
	}
	return e.is(pb.ErrorReason_ERROR_REASON_UNKNOWN_MATCHMAKING_SET) ||
		e.is(pb.ErrorReason_ERROR_REASON_SET_RETIRED) ||
		e.is(pb.ErrorReason_ERROR_REASON_TICKET_NOT_FOUND)
}
