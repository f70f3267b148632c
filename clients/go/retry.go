package fireteam

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	mathrand "math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
)

// RetryPolicy says how often calls that fail with UNAVAILABLE are repeated. Calls that fail with another code are not: another
// attempt would give the same result. All calls of this client are idempotent.
type RetryPolicy struct {
	// MaxAttempts includes the first; 1 disables retries.
	MaxAttempts int
	// InitialBackoff is the longest wait before the second attempt; it doubles for each further one.
	InitialBackoff time.Duration
	// MaxBackoff is the longest wait between attempts. If the server asks for more, the call fails, and the error has the delay.
	MaxBackoff time.Duration
}

// DefaultRetryPolicy has four attempts, 200 ms to 5 s apart.
var DefaultRetryPolicy = RetryPolicy{MaxAttempts: 4, InitialBackoff: 200 * time.Millisecond, MaxBackoff: 5 * time.Second}

// pause returns the wait after attempt number `attempt` (from 1) failed, and whether there is another attempt. jitter is uniform
// in [0, 1) and spreads clients that failed together.
func (p RetryPolicy) pause(attempt int, failure *Error, jitter float64) (time.Duration, bool) {
	if failure.Code != codes.Unavailable || failure.RetryForbidden || attempt >= p.MaxAttempts {
		return 0, false
	}
	if failure.RetryAfter > 0 {
		return scale(failure.RetryAfter, 1+jitter/4), failure.RetryAfter <= p.MaxBackoff
	}
	doubled := p.InitialBackoff << min(attempt-1, 16)
	return scale(min(doubled, p.MaxBackoff), 0.5+jitter/2), true
}

// watchPause returns the wait before a lost watch is opened again, after `unheard` without a status: a quarter of it, within the
// policy's bounds, or the server's delay if that is longer.
func (p RetryPolicy) watchPause(unheard, retryAfter time.Duration, jitter float64) time.Duration {
	grown := min(max(p.InitialBackoff, unheard/4), p.MaxBackoff)
	return max(scale(grown, 0.5+jitter/2), retryAfter)
}

func scale(duration time.Duration, factor float64) time.Duration {
	return time.Duration(float64(duration) * factor)
}

func jitter() float64 { return mathrand.Float64() }

// sleep waits, or returns the context's error.
func sleep(ctx context.Context, duration time.Duration) error {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// idempotencyKey returns 128 random bits as 32 hexadecimal digits. For anonymous callers only this key distinguishes one
// caller's requests from another's.
func idempotencyKey() string {
	var key [16]byte
	// Never fails: the runtime ends the program if the system has no random numbers.
	_, _ = rand.Read(key[:])
	return hex.EncodeToString(key[:])
}
