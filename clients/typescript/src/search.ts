// Search of a party for open sessions, and reservations of their seats.

import type { MessageInitShape } from "@bufbuild/protobuf";
import type { CallOptions } from "./calls.js";
import type { Client } from "./client.js";
import { missingField } from "./errors.js";
import type { MatchmakingSearchRequestSchema, MatchmakingSearchResponse, SessionCompositionDataSchema } from "./pb.js";
import { idempotencyKey } from "./retry.js";

/** Search of one party. Its limits relax with the time since the first search, which the server reads from the token that this keeps. */
export class Search {
  /** Request of the next search, for setting a ruleset hash or excluding sessions. */
  request: MessageInitShape<typeof MatchmakingSearchRequestSchema>;

  constructor(
    private readonly client: Client,
    private readonly setId: number,
    private readonly party: MessageInitShape<typeof SessionCompositionDataSchema>,
  ) {
    this.request = { matchmakingSetId: setId, sessionComposition: party };
  }

  /** Searches with the limits for the time waited so far. */
  async search(options?: CallOptions): Promise<MatchmakingSearchResponse> {
    const response = await this.client.calls.unary(options, (call) => this.client.matchmaking.search(this.request, call));
    this.request = { ...this.request, searchToken: response.searchToken };
    return response;
  }

  /** Reserves seats for the whole party in one of the last candidates. */
  async reserve(advertisementId: string, options?: CallOptions): Promise<Reservation> {
    const request = {
      advertisementId,
      matchmakingSetId: this.setId,
      sessionComposition: this.party,
      idempotencyKey: idempotencyKey(),
      ...(this.request.searchToken && { searchToken: this.request.searchToken }),
    };
    const response = await this.client.calls.unary(options, (call) => this.client.matchmaking.reserve(request, call));
    const { reservation } = response;
    if (reservation === undefined) {
      throw missingField("reservation");
    }
    const { reservationId, reservationToken, seats, expiresInMs } = reservation;
    return new Reservation(this.client, reservationId, reservationToken, seats, Number(expiresInMs), response.connectData);
  }
}

/** Seats reserved for a party. They expire unless the host confirms them. */
export class Reservation {
  constructor(
    private readonly client: Client,
    /** Reservation id, as the host sees it. */
    readonly id: string,
    private readonly token: Uint8Array,
    /** Number of seats. */
    readonly seats: number,
    /** Milliseconds from the response until the reservation expires. */
    readonly expiresInMs: number,
    /** Published by the host, such as its address. */
    readonly connectData: Uint8Array,
  ) {}

  /** Releases the seats. */
  async release(options?: CallOptions): Promise<void> {
    const request = { reservationId: this.id, reservationToken: this.token };
    await this.client.calls.unary(options, (call) => this.client.matchmaking.release(request, call));
  }
}
