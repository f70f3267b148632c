// Ticket of a party in a queue, and the watch of its statuses.

import { Code, ConnectError } from "@connectrpc/connect";
import { authorization, type CallOptions } from "./calls.js";
import type { Client } from "./client.js";
import { FireteamError, missingField, TicketExpiredError } from "./errors.js";
import {
  type MatchEndReason,
  ReportState,
  type ReportResultResponse,
  TicketState,
  type TicketStatus,
} from "./pb.js";
import { sleep, watchPause } from "./retry.js";
import { type TeamRanks, toTeamRanks } from "./team_ranks.js";

/** TTL of a ticket until the server has sent one, milliseconds. */
const DEFAULT_TTL_MS = 60_000;

/** Ticket of a party in a queue. It expires if it is neither watched nor kept alive by heartbeats. */
export class Ticket {
  /** TTL without a heartbeat or a watch, milliseconds. */
  readonly ttlMs: number;

  constructor(
    private readonly client: Client,
    /** Latest status that this client has received. */
    public status: TicketStatus,
    private readonly token: Uint8Array,
    ttlMs: number,
    /** Fields of the request that were ignored, because the ruleset does not trust their source. */
    readonly ignoredFields: readonly string[],
  ) {
    this.ttlMs = ttlMs || DEFAULT_TTL_MS;
  }

  /** Ticket id. */
  get id(): string {
    return this.status.ticketId;
  }

  /** Id and token, for requests of the stubs. Keep it secret. */
  get reference(): { ticketId: string; ticketToken: Uint8Array } {
    return { ticketId: this.id, ticketToken: this.token };
  }

  /**
   * Statuses of the ticket: the current one, and again after each change. The watch keeps the ticket alive. A lost watch is opened again,
   * at any server, with pauses of 0.1 to 5 s: a waiting ticket's until it was not heard of for its TTL, that of a match until the match
   * ends.
   *
   * It ends after the ticket has ended and no report of its result is awaited. It throws `TicketExpiredError`, the `FireteamError` of a
   * server that refuses the watch, the reason of an aborted `options.signal`, or an error if the client is closed. Leaving the loop
   * closes the stream.
   */
  async *watch(options: CallOptions = {}): AsyncGenerator<TicketStatus, void, undefined> {
    const watch: WatchState = { heardAt: performance.now(), isPlaying: false, isFresh: false };
    for (;;) {
      try {
        for await (const status of this.follow(watch, options.signal)) {
          yield status;
          if (status.state === TicketState.ENDED && !awaitsReports(status)) {
            return;
          }
        }
        // The server has none of the tickets any more.
        return;
      } catch (error) {
        options.signal?.throwIfAborted();
        this.client.calls.closing.signal.throwIfAborted();
        await sleep(this.pauseAfterFailure(watch, error), options.signal);
      }
    }
  }

  /** One stream to its end. */
  private async *follow(watch: WatchState, signal: AbortSignal | undefined): AsyncGenerator<TicketStatus, void, undefined> {
    watch.isFresh = false;
    const token = await this.client.calls.token();
    const closing = this.client.calls.closing.signal;
    closing.throwIfAborted();
    signal?.throwIfAborted();
    // The server repeats a status twice per TTL, so a stream that is silent for longer is lost.
    const end = new AbortController();
    const startSilence = (): ReturnType<typeof setTimeout> => setTimeout(() => end.abort(), this.ttlMs);
    const abort = (): void => end.abort();
    let silence = startSilence();
    for (const ended of [closing, signal]) {
      ended?.addEventListener("abort", abort, { once: true });
    }
    try {
      const tickets = [{ ...this.reference, ...(watch.resumeToken && { resumeToken: watch.resumeToken }) }];
      for await (const { status } of this.client.queue.watch({ tickets }, { signal: end.signal, headers: authorization(token) })) {
        clearTimeout(silence);
        silence = startSilence();
        if (status !== undefined) {
          this.status = status;
          watch.heardAt = performance.now();
          watch.isFresh = true;
          watch.resumeToken = status.resumeToken;
          watch.isPlaying = status.state === TicketState.MATCHED || awaitsReports(status);
          yield status;
        }
      }
    } catch (error) {
      const failure = new FireteamError(error);
      if (!watch.isFresh && (await this.client.calls.hasOtherToken(failure, token))) {
        throw new FireteamError(new ConnectError("the token was renewed", Code.Unavailable));
      }
      throw failure;
    } finally {
      clearTimeout(silence);
      for (const ended of [closing, signal]) {
        ended?.removeEventListener("abort", abort);
      }
      end.abort();
    }
  }

  /** Milliseconds to wait before the next stream. Throws if there is none. */
  private pauseAfterFailure(watch: WatchState, error: unknown): number {
    const failure = error instanceof FireteamError ? error : undefined;
    // A stream ends at its byte limit. The next one goes on at once, unless that sends no status either.
    if (failure?.reason === "STREAM_LIMIT_REACHED" && watch.isFresh) {
      return 0;
    }
    if (failure?.isFinal || failure?.retryForbidden) {
      throw failure;
    }
    const unheardMs = performance.now() - watch.heardAt;
    const pause = watchPause(this.client.calls.retryPolicy, unheardMs, failure?.retryAfterMs ?? 0, Math.random());
    if (watch.isPlaying) {
      return pause;
    }
    if (unheardMs >= this.ttlMs) {
      throw new TicketExpiredError(error);
    }
    return Math.min(pause, this.ttlMs - unheardMs);
  }

  /** Extends the ticket's TTL and returns its status. Not needed during a watch; otherwise once per half of the TTL. */
  async heartbeat(options?: CallOptions): Promise<TicketStatus> {
    const request = { tickets: [this.reference] };
    const response = await this.client.calls.unary(options, (call) => this.client.queue.heartbeat(request, call));
    return this.setStatus(response.statuses[0]);
  }

  /** Accepts or declines the proposed match for all players whom this client acts for. */
  async respond(matchId: string, accept: boolean, options?: CallOptions): Promise<TicketStatus> {
    const request = { ...this.reference, matchId, accept };
    const response = await this.client.calls.unary(options, (call) => this.client.queue.respond(request, call));
    return this.setStatus(response.status);
  }

  /** Takes the party out of the queue or of its match, in each state. */
  async leave(options?: CallOptions): Promise<TicketStatus> {
    const response = await this.client.calls.unary(options, (call) => this.client.queue.leave(this.reference, call));
    return this.setStatus(response.result.value);
  }

  /** Ends a match that no game server hosts. `failed`: it could not be hosted, and was not played. */
  async endMatch(matchId: string, failed: boolean, options?: CallOptions): Promise<MatchEndReason> {
    const request = { matchId, ticketToken: this.token, failed };
    return (await this.client.calls.unary(options, (call) => this.client.queue.endMatch(request, call))).endReason;
  }

  /**
   * Reports the rank of each team of a match that a player hosts: each player reports. Or of one without a host, from the backend. The
   * response's state says whether other sides must report too.
   */
  async reportResult(matchId: string, ranks: TeamRanks, options?: CallOptions): Promise<ReportResultResponse> {
    return this.client.reportResult({ matchId, ticketToken: this.token, teamRanks: toTeamRanks(ranks) }, options);
  }

  private setStatus(status: TicketStatus | undefined): TicketStatus {
    if (status === undefined) {
      throw missingField("status");
    }
    this.status = status;
    return status;
  }
}

/** State of a watch over all its streams. */
interface WatchState {
  /** Last time at which the server said that the ticket lives, milliseconds. */
  heardAt: number;
  /** The match goes on without a watch. */
  isPlaying: boolean;
  /** The stream has sent a status. */
  isFresh: boolean;
  /** From the latest status. */
  resumeToken?: Uint8Array;
}

/** Whether the players still report the result, and further statuses say what the result is. */
function awaitsReports(status: TicketStatus): boolean {
  return status.foundMatch?.reports?.state === ReportState.WAITING;
}
