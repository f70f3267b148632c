// Advertisement of a session or a game server, and the matches that queues give it.

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { CallOptions } from "./calls.js";
import type { Client } from "./client.js";
import { FireteamError } from "./errors.js";
import {
  type MatchmakingUpdateAdvertisementRequest,
  MatchmakingUpdateAdvertisementRequestSchema,
  type MatchmakingUpdateAdvertisementResponse,
  type QueueHostHeartbeatResponse,
  type ReportResultResponse,
} from "./pb.js";
import { idempotencyKey } from "./retry.js";
import { type TeamRanks, toTeamRanks } from "./team_ranks.js";

type UpdateInit = MessageInitShape<typeof MatchmakingUpdateAdvertisementRequestSchema>;

/** Advertisement. It expires at the end of its TTL unless heartbeats extend it. */
export class Advertisement {
  private constructor(
    private readonly client: Client,
    /** Last whole request, with id and token, for a server that lost the advertisement. */
    private readonly published: MatchmakingUpdateAdvertisementRequest,
    /** Latest response to an update, with TTL, reservations and the ids of hosted matches. */
    public latest: MatchmakingUpdateAdvertisementResponse,
  ) {
    this.take(latest);
  }

  /** Publishes a session or a game server. For `Client.advertise`. */
  static async publish(client: Client, request: UpdateInit, options?: CallOptions): Promise<Advertisement> {
    const published = create(MatchmakingUpdateAdvertisementRequestSchema, request);
    published.idempotencyKey ||= idempotencyKey();
    const update = (): Promise<MatchmakingUpdateAdvertisementResponse> =>
      client.calls.unary(options, (call) => client.matchmaking.updateAdvertisement(published, call));
    return new Advertisement(client, published, await update());
  }

  /** Advertisement id, as searchers see it. */
  get id(): string {
    return this.published.advertisementId;
  }

  /** Extends the TTL. If the server no longer has the advertisement, it is published again. */
  async heartbeat(options?: CallOptions): Promise<void> {
    try {
      await this.update({}, options);
    } catch (error) {
      if (!(error instanceof FireteamError) || error.reason !== "ADVERTISEMENT_NOT_FOUND") {
        throw error;
      }
      await this.send(this.published, options);
    }
  }

  /** Says that these parties are on their way, so that their reservations no longer expire. */
  async confirmReservations(reservationIds: string[], options?: CallOptions): Promise<void> {
    await this.update({ confirmedReservationIds: reservationIds }, options);
  }

  /**
   * Confirms matches that the queue has given this game server, and keeps them alive during play. Without ids it lists the matches. Send
   * the next one after `nextBeatInMs` of the response.
   */
  async hostHeartbeat(matchIds: readonly string[] = [], options?: CallOptions): Promise<QueueHostHeartbeatResponse> {
    const matches = matchIds.map((matchId) => ({ matchId }));
    const request = { advertisementToken: this.published.advertisementToken, matches };
    return this.client.calls.unary(options, (call) => this.client.queue.hostHeartbeat(request, call));
  }

  /** Reports the rank of each team of a match that this game server hosts. It ends the match. */
  async reportResult(matchId: string, ranks: TeamRanks, options?: CallOptions): Promise<ReportResultResponse> {
    const { advertisementToken } = this.published;
    return this.client.reportResult({ matchId, advertisementToken, teamRanks: toTeamRanks(ranks) }, options);
  }

  /** Deletes the advertisement. */
  async delete(options?: CallOptions): Promise<void> {
    const { advertisementId, advertisementToken } = this.published;
    const request = { advertisementId, advertisementToken };
    await this.client.calls.unary(options, (call) => this.client.matchmaking.deleteAdvertisement(request, call));
  }

  /** Sends the shortest update, id, token, set and TTL, with changes. */
  private async update(changes: UpdateInit, options: CallOptions | undefined): Promise<void> {
    const { advertisementId, advertisementToken, matchmakingSetId, timeToLiveMs } = this.published;
    await this.send(
      {
        advertisementId,
        advertisementToken,
        ...(matchmakingSetId !== undefined && { matchmakingSetId }),
        ...(timeToLiveMs !== undefined && { timeToLiveMs }),
        ...changes,
      },
      options,
    );
  }

  private async send(request: UpdateInit, options: CallOptions | undefined): Promise<void> {
    this.take(
      await this.client.calls.unary(options, (call) => this.client.matchmaking.updateAdvertisement(request, call)),
    );
  }

  private take(response: MatchmakingUpdateAdvertisementResponse): void {
    this.published.advertisementId = response.advertisementId;
    this.published.advertisementToken = response.advertisementToken;
    this.latest = response;
  }
}
