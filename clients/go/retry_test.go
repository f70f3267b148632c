package fireteam

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func TestPauseDoublesAndHasJitter(t *testing.T) {
	policy := RetryPolicy{MaxAttempts: 4, InitialBackoff: 100 * time.Millisecond, MaxBackoff: 300 * time.Millisecond}
	unavailable := newError(status.Error(codes.Unavailable, "later"), nil)
	asked := newError(status.Error(codes.Unavailable, "later"), metadata.Pairs(pushbackTrailer, "200"))
	forbidden := newError(status.Error(codes.Unavailable, "later"), metadata.Pairs(pushbackTrailer, "-1"))
	for _, expected := range []struct {
		attempt int
		failure *Error
		jitter  float64
		pause   time.Duration
		again   bool
	}{
		{1, unavailable, 0, 50 * time.Millisecond, true},
		{1, unavailable, 1, 100 * time.Millisecond, true},
		{2, unavailable, 1, 200 * time.Millisecond, true},
		{3, unavailable, 1, 300 * time.Millisecond, true},
		{4, unavailable, 1, 0, false},
		{1, asked, 0, 200 * time.Millisecond, true},
		{1, asked, 1, 250 * time.Millisecond, true},
		{1, forbidden, 0, 0, false},
		{1, newError(status.Error(codes.NotFound, "none"), nil), 0, 0, false},
	} {
		pause, again := policy.pause(expected.attempt, expected.failure, expected.jitter)
		if again != expected.again || (again && pause != expected.pause) {
			t.Errorf("%+v: %v, %v", expected, pause, again)
		}
	}
}

func TestWatchPauseGrowsWithTheOutage(t *testing.T) {
	for _, expected := range []struct{ unheard, retryAfter, pause time.Duration }{
		{0, 0, 200 * time.Millisecond},
		{8 * time.Second, 0, 2 * time.Second},
		{time.Minute, 0, 5 * time.Second},
		{0, 7 * time.Second, 7 * time.Second},
	} {
		if pause := DefaultRetryPolicy.watchPause(expected.unheard, expected.retryAfter, 1); pause != expected.pause {
			t.Errorf("%+v: %v", expected, pause)
		}
	}
}
