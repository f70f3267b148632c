// Calls with deadline, token and retries.

import type { CallOptions as ConnectCallOptions } from "@connectrpc/connect";
import { Code } from "@connectrpc/connect";
import { FireteamError } from "./errors.js";
import { pauseAfter, type RetryPolicy, sleep } from "./retry.js";

/**
 * Returns the caller's token, without `Bearer`. It is called before each attempt, so it should keep the token until shortly before its
 * expiry. A call that fails with UNAUTHENTICATED is repeated once if the source returns another token.
 */
export type TokenSource = () => string | Promise<string>;

/** Options of one call. */
export interface CallOptions {
  /** Ends the call. It then fails with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** Settings of all calls of a client. */
export class Calls {
  /** Aborted when the client is closed. */
  readonly closing = new AbortController();

  constructor(
    readonly retryPolicy: RetryPolicy,
    private readonly attemptTimeoutMs: number,
    private readonly tokenSource: TokenSource | undefined,
  ) {}

  /** Token for the next attempt, if there is a source. */
  async token(): Promise<string | undefined> {
    return this.tokenSource?.();
  }

  /** Whether a call that failed can be repeated with another token than the one that it sent. */
  async hasOtherToken(failure: FireteamError, sent: string | undefined): Promise<boolean> {
    return failure.code === Code.Unauthenticated && sent !== undefined && (await this.token()) !== sent;
  }

  /** Makes a call, and repeats it as the retry policy allows. */
  async unary<Response>(
    options: CallOptions | undefined,
    attempt: (options: ConnectCallOptions) => Promise<Response>,
  ): Promise<Response> {
    const signal = options?.signal;
    let renewed = false;
    for (let number = 1; ; ) {
      this.closing.signal.throwIfAborted();
      const token = await this.token();
      const headers = authorization(token);
      try {
        return await attempt({ headers, timeoutMs: this.attemptTimeoutMs, ...(signal && { signal }) });
      } catch (error) {
        signal?.throwIfAborted();
        this.closing.signal.throwIfAborted();
        const failure = new FireteamError(error);
        if (!renewed && (await this.hasOtherToken(failure, token))) {
          renewed = true;
          continue;
        }
        const pause = pauseAfter(this.retryPolicy, number, failure, Math.random());
        if (pause === undefined) {
          throw failure;
        }
        await sleep(pause, signal);
        number += 1;
      }
    }
  }
}

/** Headers with a token. */
export function authorization(token: string | undefined): Record<string, string> {
  return token === undefined ? {} : { authorization: `Bearer ${token}` };
}
