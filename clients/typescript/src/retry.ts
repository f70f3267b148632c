// Retry policy: number of attempts and exponential backoff with jitter.

import { Code } from "@connectrpc/connect";
import type { FireteamError } from "./errors.js";

/**
 * Policy for calls that fail with UNAVAILABLE. Calls that fail with another code are not repeated: another attempt would give the
 * same result. All calls of this client are idempotent.
 */
export interface RetryPolicy {
  /** Maximum number of attempts, including the first; 1 disables retries. */
  readonly maxAttempts: number;
  /** Longest wait before the second attempt, milliseconds; it doubles for each further one. */
  readonly initialBackoffMs: number;
  /** Longest wait between attempts. If the server asks for more, the call fails, and the error has the delay. */
  readonly maxBackoffMs: number;
}

/** Four attempts, 200 ms to 5 s apart. */
export const DEFAULT_RETRY_POLICY: RetryPolicy = { maxAttempts: 4, initialBackoffMs: 200, maxBackoffMs: 5000 };

/**
 * Milliseconds to wait after attempt number `attempt` (from 1) failed; `undefined` if the call must not be repeated. `jitter` is
 * uniform in [0, 1) and spreads clients that failed together.
 */
export function pauseAfter(policy: RetryPolicy, attempt: number, failure: FireteamError, jitter: number): number | undefined {
  if (failure.code !== Code.Unavailable || failure.retryForbidden || attempt >= policy.maxAttempts) {
    return undefined;
  }
  if (failure.retryAfterMs !== undefined) {
    return failure.retryAfterMs > policy.maxBackoffMs ? undefined : failure.retryAfterMs * (1 + jitter / 4);
  }
  const doubled = policy.initialBackoffMs * 2 ** Math.min(attempt - 1, 16);
  return Math.min(doubled, policy.maxBackoffMs) * (0.5 + jitter / 2);
}

/**
 * Milliseconds to wait before a lost watch is opened again, after `unheardMs` without a status: a quarter of it, within the policy's
 * bounds, or the server's delay if that is longer.
 */
export function watchPause(policy: RetryPolicy, unheardMs: number, retryAfterMs: number, jitter: number): number {
  const grown = Math.min(Math.max(policy.initialBackoffMs, unheardMs / 4), policy.maxBackoffMs);
  return Math.max(grown * (0.5 + jitter / 2), retryAfterMs);
}

/** Waits. Throws the signal's reason if it is aborted first. */
export async function sleep(milliseconds: number, signal: AbortSignal | undefined): Promise<void> {
  signal?.throwIfAborted();
  await new Promise<void>((resolve, reject) => {
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, milliseconds);
    const abort = (): void => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    signal?.addEventListener("abort", abort, { once: true });
  });
}

/**
 * Idempotency key: 128 random bits as 32 hexadecimal digits. For anonymous callers only this key distinguishes one caller's requests
 * from another's.
 */
export function idempotencyKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
