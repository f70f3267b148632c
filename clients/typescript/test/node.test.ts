// The connection of Node.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http2";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { connect } from "../src/node.js";
import { QueueService, TicketState } from "../src/pb.js";

/** Short, so that a ping of a closed connection would come during the test. */
const PING_INTERVAL_MS = 20;

test("a connection that was closed during a watch is not pinged", async () => {
  const status = { ticketId: "t", state: TicketState.WAITING };
  const adapter = connectNodeAdapter({
    routes: (router) =>
      router.service(QueueService, {
        enter: () => ({ status, ticketToken: new Uint8Array([1]), expiresInMs: 60_000n }),
        async *watch(_request, { signal }) {
          yield { status };
          await once(signal, "abort");
        },
      }),
  });
  const server = createServer(adapter);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const client = connect(`http://127.0.0.1:${port}`, { pingIntervalMs: PING_INTERVAL_MS });
  try {
    const ticket = await client.enterQueue({ matchmakingSetId: 11, sessionComposition: { players: [{ userId: "ann" }] } });
    const watch = ticket.watch();
    await watch.next();
    const next = watch.next();
    client.close();
    await assert.rejects(next, /client is closed/);
    await assert.rejects(ticket.heartbeat(), /client is closed/);
    // The error of such a ping is thrown in a timer: there is no event to wait for when there is none.
    await sleep(20 * PING_INTERVAL_MS);
  } finally {
    client.close();
    server.close();
  }
});
