// The client against the server: over gRPC as in Node, over gRPC-Web as in a browser, and over the Connect protocol with JSON and protobuf.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Code } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { playDuel } from "../sample/duel.js";
import { advertise } from "../sample/game_server.js";
import { Client, FireteamError } from "../src/index.js";
import { connect as connectNode } from "../src/node.js";
import { ErrorReason, HostedMatchState, TicketState, type TicketStatus } from "../src/pb.js";
import { connect as connectWeb } from "../src/web.js";
import { ServerProcess, SKIPPED } from "./server_process.js";

/** DUEL has a ready check and game servers; RANKED a ready check with cooldowns and no hosts; OPEN is searched. */
const [DUEL, RANKED, OPEN] = [11, 3, 1];

const party = (userId: string) => ({ players: [{ userId, skill: 25 }] });
const enterRequest = (setId: number, userId: string) => ({ matchmakingSetId: setId, sessionComposition: party(userId) });

/** Reads statuses until one has the state. */
async function nextIn(watch: AsyncIterator<TicketStatus>, state: TicketState): Promise<TicketStatus> {
  for (;;) {
    const { value, done } = await watch.next();
    assert.ok(!done, `the watch ended before ${TicketState[state]}`);
    const status = value as TicketStatus;
    if (status.state === state) {
      return status;
    }
  }
}

async function failureOf(call: Promise<unknown>): Promise<FireteamError> {
  const error = await call.then(() => undefined, (error: unknown) => error);
  assert.ok(error instanceof FireteamError, `a FireteamError, not ${String(error)}`);
  return error;
}

/** Client of the Connect protocol. */
const connectProtocol = (httpVersion: "1.1" | "2", useBinaryFormat: boolean) => (baseUrl: string) =>
  new Client(createConnectTransport({ baseUrl, httpVersion, useBinaryFormat }));

const CONNECTIONS = [
  ["gRPC", connectNode],
  ["gRPC-Web", connectWeb],
  ["JSON over HTTP/1.1", connectProtocol("1.1", false)],
  ["JSON over HTTP/2", connectProtocol("2", false)],
  ["Connect protocol with protobuf", connectProtocol("1.1", true)],
] as const;

for (const [name, connect] of CONNECTIONS) {
  describe(name, { skip: SKIPPED, timeout: 120_000 }, () => {
    /** Runs a test with a server and a client. */
    const withServer = (body: (server: ServerProcess, client: Client) => Promise<void>) => async () => {
      await using server = await ServerProcess.start();
      const client = connect(server.uri);
      try {
        await body(server, client);
      } finally {
        client.close();
      }
    };

    test("a duel is played, and both ratings change", withServer(async (_server, client) => {
      const lines: string[] = [];
      await playDuel(client, DUEL, (line) => lines.push(line));
      assert.equal(lines.filter((line) => line.endsWith("at 203.0.113.7:9000")).length, 2, lines.join("\n"));
      assert.ok(lines.includes("game server: reported, 2 ratings changed"), lines.join("\n"));
    }));

    test("a watch goes on after the server is killed and started again", withServer(async (server, client) => {
      const ann = await client.enterQueue(enterRequest(DUEL, "ann"));
      const annWatch = ann.watch();
      await nextIn(annWatch, TicketState.WAITING);

      await server.kill();
      const lost = await failureOf(client.getRatings(DUEL, ["ann"]));
      assert.deepEqual([lost.code, lost.reason], [Code.Unavailable, ""], lost.message);
      const pending = nextIn(annWatch, TicketState.PROPOSED);
      await server.startAgain();

      const bob = await client.enterQueue(enterRequest(DUEL, "bob"));
      const bobWatch = bob.watch();
      const gameServer = await advertise(client, DUEL);
      const proposed = await pending;
      await nextIn(bobWatch, TicketState.PROPOSED);
      const matchId = proposed.foundMatch?.matchId ?? "";
      await ann.respond(matchId, true);
      await bob.respond(matchId, true);
      while ((await gameServer.hostHeartbeat([matchId])).matches[0]?.state !== HostedMatchState.PLAYING);
      await nextIn(annWatch, TicketState.MATCHED);
      await gameServer.reportResult(matchId, { 0: 1, 1: 1 });
      await nextIn(annWatch, TicketState.ENDED);
      assert.equal((await annWatch.next()).done, true);
      await bobWatch.return();
    }));

    test("errors have the reason of the server", withServer(async (_server, client) => {
      const ann = await client.enterQueue(enterRequest(RANKED, "ann"));
      const queued = await failureOf(client.enterQueue(enterRequest(RANKED, "ann")));
      assert.deepEqual([queued.code, queued.reason, queued.errorReason], [Code.AlreadyExists, "ALREADY_QUEUED", ErrorReason.ALREADY_QUEUED]);
      assert.equal(queued.metadata.player, "0");

      const invalid = await failureOf(client.enterQueue(enterRequest(RANKED, "a".repeat(10_000))));
      assert.deepEqual([invalid.reason, invalid.fields[0]?.field], ["INVALID_REQUEST", "session_composition.players[0].user_id"]);

      const bob = await client.enterQueue(enterRequest(RANKED, "bob"));
      const bobWatch = bob.watch();
      const { foundMatch } = await nextIn(bobWatch, TicketState.PROPOSED);
      await ann.respond(foundMatch?.matchId ?? "", false);
      const cooldown = await failureOf(client.enterQueue(enterRequest(RANKED, "ann")));
      assert.equal(cooldown.reason, "QUEUE_COOLDOWN");
      assert.ok((cooldown.retryAfterMs ?? 0) > 1000, String(cooldown.retryAfterMs));
      assert.equal((await bob.leave()).state, TicketState.ENDED);
      await bobWatch.return();
    }));

    test("a search finds a session and reserves its seats", withServer(async (_server, client) => {
      const host = await client.advertise({
        matchmakingSetId: OPEN,
        sessionComposition: { ...party("host"), maxAllowedJoinReservationCount: 3 },
        connectData: new TextEncoder().encode("198.51.100.4:9000"),
      });
      const search = client.newSearch(OPEN, party("guest"));
      const { candidates } = await search.search();
      assert.equal(candidates.length, 1);
      const reservation = await search.reserve(candidates[0]?.advertisementId ?? "");
      assert.deepEqual([reservation.seats, new TextDecoder().decode(reservation.connectData)], [1, "198.51.100.4:9000"]);
      await host.heartbeat();
      assert.equal(host.latest.reservations.length, 1);
      await reservation.release();
      await host.heartbeat();
      assert.equal(host.latest.reservations.length, 0);
      await host.delete();
      await failureOf(search.reserve(host.id));
    }));
  });
}
