// Game server of the duel. As a program it hosts matches until it is stopped:
//
//   npm run game-server -- http://127.0.0.1:50051 11

import { pathToFileURL } from "node:url";
import { setTimeout as sleep } from "node:timers/promises";
import type { Advertisement, Client } from "../src/index.js";
import { connect } from "../src/node.js";
import { AdvertisementKind, HostedMatchState, type ReportResultResponse } from "../src/pb.js";

/** Connect data. Players receive it with their match. */
export const CONNECT_DATA = "203.0.113.7:9000";

/** Shorter than the server asks for, because the demonstration should not wait. */
const BEAT_INTERVAL_MS = 200;

/** Time of play of the program's matches. */
const PLAY_MS = 1000;

/** Publishes a game server with a seat for each player. */
export async function advertise(client: Client, setId: number): Promise<Advertisement> {
  return client.advertise({
    matchmakingSetId: setId,
    kind: AdvertisementKind.GAME_SERVER,
    connectData: new TextEncoder().encode(CONNECT_DATA),
    sessionComposition: { partySizeComposition: [1], maxAllowedJoinReservationCount: 2 },
  });
}

/** Rank of a team: the first one wins. */
export function rankOf(team: number): number {
  return team === 0 ? 1 : 2;
}

/**
 * Confirms the next match that the queue gives this game server, keeps it alive until `isPlayed`, which is asked during play, and
 * reports its result.
 */
export async function hostMatch(
  server: Advertisement,
  isPlayed: () => boolean,
  signal?: AbortSignal,
): Promise<ReportResultResponse> {
  let matchIds: string[] = [];
  for (;;) {
    const beat = await server.hostHeartbeat(matchIds, { signal });
    matchIds = beat.hostedMatchIds;
    const playing = beat.matches.find(({ state }) => state === HostedMatchState.PLAYING);
    if (playing && isPlayed()) {
      return server.reportResult(playing.matchId, { 0: rankOf(0), 1: rankOf(1) }, { signal });
    }
    await sleep(BEAT_INTERVAL_MS, undefined, { signal });
  }
}

async function main(uri = "http://127.0.0.1:50051", set = "11"): Promise<void> {
  const client = connect(uri, { ...(process.env.FIRETEAM_TOKEN && { token: process.env.FIRETEAM_TOKEN }) });
  const server = await advertise(client, Number(set));
  console.log(`advertised ${server.id}`);
  for (;;) {
    let began = Infinity;
    const isPlayed = (): boolean => (began = Math.min(began, performance.now())) + PLAY_MS <= performance.now();
    const { rated } = await hostMatch(server, isPlayed);
    console.log(`reported, rated: ${rated}`);
    await server.heartbeat();
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  await main(...process.argv.slice(2));
}
