// Players of the tests: they enter queues by the public calls, with places and skills that do not change from run to run.

import { createClient } from "@connectrpc/connect";
import { createGrpcWebTransport } from "@connectrpc/connect-web";
import { MatchmakingService } from "./gen/fireteam/v1/matchmaking_pb.js";
import { OperatorService } from "./gen/fireteam/v1/operator_pb.js";
import { QueueService } from "./gen/fireteam/v1/queue_pb.js";

/** Cities with degrees north and east, and their share of the players. */
const CITIES = [
  [52.5, 13.4, 9], [48.9, 2.3, 8], [51.5, -0.1, 8], [40.4, -3.7, 4], [41.9, 12.5, 4], [59.3, 18.1, 3], [55.8, 37.6, 5],
  [40.7, -74, 10], [34, -118.2, 9], [41.9, -87.6, 6], [29.8, -95.4, 5], [43.7, -79.4, 4], [19.4, -99.1, 4],
  [-23.6, -46.6, 7], [-34.6, -58.4, 4], [35.7, 139.7, 9], [37.6, 127, 8], [31.2, 121.5, 6], [1.35, 103.8, 4],
  [19.1, 72.9, 5], [-33.9, 151.2, 4], [-26.2, 28, 2], [30, 31.2, 2], [25.2, 55.3, 2],
];

/** Numbers from 0 to 1 that are the same on each run. */
export function randomNumbers(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

/** Players, game servers and an operator of one server. */
export class World {
  constructor(server, headers = {}) {
    const transport = (baseUrl) => createGrpcWebTransport({ baseUrl });
    this.headers = headers;
    this.queue = createClient(QueueService, transport(server.client));
    this.matchmaking = createClient(MatchmakingService, transport(server.client));
    this.operator = createClient(OperatorService, transport(server.operator));
    this.random = randomNumbers(7);
    this.entered = 0;
  }

  /** A city's place, by the share of its players, moved by a degree or two. */
  place() {
    const total = CITIES.reduce((sum, [, , share]) => sum + share, 0);
    let at = this.random() * total;
    const [latitude, longitude] = CITIES.find(([, , share]) => (at -= share) < 0) ?? CITIES[0];
    const moved = (degrees) => degrees + (this.random() - 0.5) * 6;
    return { latitudeDegrees: moved(latitude), longitudeDegrees: moved(longitude) };
  }

  /** Enters a party of one player. Returns the id of the ticket and its token. */
  async enter(matchmakingSetId, { skill = 1500, user = `player-${this.entered}`, regions = [], attributes = {} } = {}) {
    this.entered += 1;
    const { status, ticketToken } = await this.queue.enter(
      {
        matchmakingSetId,
        idempotencyKey: `entry-of-${user}-number-${this.entered}`,
        sessionComposition: {
          partySizeComposition: [1],
          localityInfo: this.place(),
          players: [{ userId: user, skill }],
          regionLatencies: regions,
          attributes,
        },
      },
      { headers: this.headers },
    );
    return { ticketId: status.ticketId, ticketToken };
  }

  /** Enters many parties with skills from 0 to 5000, `parallel` calls at a time. */
  async enterMany(matchmakingSetId, number, parallel = 32) {
    let left = number;
    const enterSome = async () => {
      while (left > 0) {
        left -= 1;
        await this.enter(matchmakingSetId, { skill: Math.round(this.random() * 5_000) });
      }
    };
    await Promise.all(Array.from({ length: parallel }, enterSome));
  }

  /** Enters many parties that never match: each has a room of its own. */
  async park(matchmakingSetId, number, parallel = 32) {
    let left = number;
    const enterSome = async () => {
      while (left > 0) {
        left -= 1;
        const room = { value: { case: "stringValue", value: `room ${left}` } };
        await this.enter(matchmakingSetId, { attributes: { room } });
      }
    };
    await Promise.all(Array.from({ length: parallel }, enterSome));
  }

  /** Advertises sessions and game servers of a set. */
  async advertise(matchmakingSetId, number, kind) {
    for (let at = 0; at < number; at += 1) {
      await this.matchmaking.updateAdvertisement({
        matchmakingSetId,
        kind,
        idempotencyKey: `advertisement-of-kind-${kind}-${at}`,
        sessionComposition: { partySizeComposition: [1], maxAllowedJoinReservationCount: 8, localityInfo: this.place() },
      });
    }
  }

  /** Waits until `condition` gives a value. */
  static async until(name, condition) {
    const deadline = Date.now() + 60_000;
    for (;;) {
      const value = await condition();
      if (value) return value;
      if (Date.now() > deadline) throw new Error(`timed out: ${name}`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}
