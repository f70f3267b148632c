// Client of a server over a transport: queues, searches, advertisements and ratings.

import type { MessageInitShape } from "@bufbuild/protobuf";
import { type Client as Stub, createClient, type Transport } from "@connectrpc/connect";
import { Advertisement } from "./advertisement.js";
import { type CallOptions, Calls, type TokenSource } from "./calls.js";
import { missingField } from "./errors.js";
import {
  type BeaconClaimSchema,
  LatencyService,
  MatchmakingService,
  type MatchmakingUpdateAdvertisementRequestSchema,
  type QueueEnterRequestSchema,
  QueueService,
  RatingService,
  type ReportResultRequestSchema,
  type ReportResultResponse,
  type ReportTripsResponse,
  type SessionCompositionDataSchema,
  type UserRating,
} from "./pb.js";
import { DEFAULT_RETRY_POLICY, idempotencyKey, type RetryPolicy } from "./retry.js";
import { Search } from "./search.js";
import { Ticket } from "./ticket.js";

export type { CallOptions, TokenSource } from "./calls.js";

/** Deadline of one attempt, milliseconds. */
const DEFAULT_ATTEMPT_TIMEOUT_MS = 5000;

/** Settings of a client. */
export interface ClientOptions {
  /** Token of the caller. Default: none. */
  readonly token?: string | TokenSource;
  /** Default: `DEFAULT_RETRY_POLICY`. */
  readonly retryPolicy?: RetryPolicy;
  /** Deadline of each attempt, milliseconds. Default: 5000. */
  readonly attemptTimeoutMs?: number;
}

/** Client of a fireteam server. */
export class Client {
  /** Generated stub. It adds no token and no idempotency key, and never retries. */
  readonly matchmaking: Stub<typeof MatchmakingService>;
  /** Generated stub, as `matchmaking`. */
  readonly queue: Stub<typeof QueueService>;
  /** Generated stub, as `matchmaking`. */
  readonly ratings: Stub<typeof RatingService>;
  /** Generated stub, as `matchmaking`. */
  readonly latency: Stub<typeof LatencyService>;
  /** Settings of the calls. For the handles of this package. */
  readonly calls: Calls;

  /** Uses a transport of the caller. `closeTransport` ends its connections. */
  constructor(transport: Transport, options: ClientOptions = {}, private readonly closeTransport: () => void = () => {}) {
    const { token } = options;
    const source = typeof token === "string" ? () => token : token;
    const timeoutMs = options.attemptTimeoutMs ?? DEFAULT_ATTEMPT_TIMEOUT_MS;
    this.calls = new Calls(options.retryPolicy ?? DEFAULT_RETRY_POLICY, timeoutMs, source);
    this.matchmaking = createClient(MatchmakingService, transport);
    this.queue = createClient(QueueService, transport);
    this.ratings = createClient(RatingService, transport);
    this.latency = createClient(LatencyService, transport);
  }

  /** Ends watches and connections. Calls fail from then on. */
  close(): void {
    this.calls.closing.abort(new Error("client is closed; create another"));
    this.closeTransport();
  }

  /** Enters a party into a queue and returns its ticket. Adds an idempotency key to a request without one. */
  async enterQueue(request: MessageInitShape<typeof QueueEnterRequestSchema>, options?: CallOptions): Promise<Ticket> {
    const keyed = { ...request, idempotencyKey: request.idempotencyKey || idempotencyKey() };
    const entered = await this.calls.unary(options, (call) => this.queue.enter(keyed, call));
    if (entered.status === undefined) {
      throw missingField("status");
    }
    return new Ticket(this, entered.status, entered.ticketToken, Number(entered.expiresInMs), entered.ignoredFields);
  }

  /**
   * Reports the client's own measurements of beacons, at most 32, and returns a `latencyToken` for `SessionCompositionData`. Without claims
   * it has what the server has observed at this connection. Browsers cannot send UDP, so they have no receipts: rulesets with
   * `<Latency Trust="proven">` do not count claims.
   */
  async reportTrips(
    claims: MessageInitShape<typeof BeaconClaimSchema>[] = [],
    options?: CallOptions,
  ): Promise<ReportTripsResponse> {
    return this.calls.unary(options, (call) => this.latency.reportTrips({ claims }, call));
  }

  /** Creates a search of a set for a party. Sends no request yet. */
  newSearch(setId: number, party: MessageInitShape<typeof SessionCompositionDataSchema>): Search {
    return new Search(this, setId, party);
  }

  /** Publishes a session or a game server. Leave id and token of the request empty. */
  async advertise(
    request: MessageInitShape<typeof MatchmakingUpdateAdvertisementRequestSchema>,
    options?: CallOptions,
  ): Promise<Advertisement> {
    return Advertisement.publish(this, request, options);
  }

  /** Ratings of users in a set's pool, in the order of `userIds`. */
  async getRatings(setId: number, userIds: string[], options?: CallOptions): Promise<UserRating[]> {
    const request = { matchmakingSetId: setId, userIds };
    return (await this.calls.unary(options, (call) => this.ratings.getRatings(request, call))).ratings;
  }

  /**
   * Reports the result of a match. The request has the proof of permission. `Ticket` and `Advertisement` have the same call with
   * their own proof.
   */
  async reportResult(
    request: MessageInitShape<typeof ReportResultRequestSchema>,
    options?: CallOptions,
  ): Promise<ReportResultResponse> {
    return this.calls.unary(options, (call) => this.ratings.reportResult(request, call));
  }
}
