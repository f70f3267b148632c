// Plays a match against a running server, as a game server and as two players in its queue. Prints each step, and `ok` at the end, or
// one line with the failure.
//
//   npm run duel -- http://127.0.0.1:50051 11
//
// Set 11 is the shipped duel. For a server with authentication, set FIRETEAM_TOKEN to a token of a game server.

import { pathToFileURL } from "node:url";
import type { Client } from "../src/index.js";
import { connect } from "../src/node.js";
import { advertise, hostMatch, rankOf } from "./game_server.js";
import { play } from "./player.js";

/** Time limit of the whole duel, milliseconds. */
const TIMEOUT_MS = 60_000;

/** Enters two players, accepts their match, confirms it as its game server, reports the result and compares the ratings. */
export async function playDuel(client: Client, setId: number, log: (line: string) => void): Promise<void> {
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  const run = crypto.randomUUID().slice(0, 8);
  const users = [`ann-${run}`, `bob-${run}`];
  const ratings = async (): Promise<number[]> =>
    (await client.getRatings(setId, users, { signal })).map(({ rating }) => rating?.rating ?? NaN);
  const before = await ratings();

  const server = await advertise(client, setId);
  // Here players join their game server by a counter; in a game, over the network and with their credential.
  let joined = 0;
  const events = { log, joined: (): void => void (joined += 1) };
  const hosted = hostMatch(server, () => joined === users.length, signal);
  const [result, ...matches] = await Promise.all([
    hosted,
    ...users.map((user) => play(client, setId, user, events, signal)),
  ]);
  if (!result.rated) {
    throw new Error(`the match was not rated: ${result.unrated}`);
  }
  log(`game server: reported, ${result.changes.length} ratings changed`);

  const after = await ratings();
  users.forEach((user, at) => {
    const [from, to] = [before[at] ?? NaN, after[at] ?? NaN];
    log(`${user}: rating ${from.toFixed(2)}, then ${to.toFixed(2)}`);
    const hasWon = rankOf(matches[at]?.team ?? 0) === 1;
    if (!(hasWon ? to > from : to < from)) {
      throw new Error("the winner's rating must rise, and the other's must fall");
    }
  });
  await server.delete({ signal });
}

async function main(uri = "http://127.0.0.1:50051", set = "11"): Promise<void> {
  const client = connect(uri, { ...(process.env.FIRETEAM_TOKEN && { token: process.env.FIRETEAM_TOKEN }) });
  try {
    await playDuel(client, Number(set), console.log);
    console.log("ok");
  } catch (error) {
    console.error(`failed: ${error instanceof Error ? error.message : String(error)}`);
    process.exitCode = 1;
  } finally {
    client.close();
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  await main(...process.argv.slice(2));
}
