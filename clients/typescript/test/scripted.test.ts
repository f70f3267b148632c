// Retries and watches against a queue service on a socket of its own that fails as the test says.

import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { create } from "@bufbuild/protobuf";
import { Code, ConnectError, type HandlerContext, type ServiceImpl } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { ErrorInfoSchema, RetryInfoSchema } from "../src/gen/google/rpc/error_details_pb.js";
import { type Client, type ClientOptions, FireteamError, TicketExpiredError } from "../src/index.js";
import { QueueService, TicketState } from "../src/pb.js";
import { connect } from "../src/web.js";

type Script = Partial<ServiceImpl<typeof QueueService>>;

const WAITING = { ticketId: "t", state: TicketState.WAITING, resumeToken: new TextEncoder().encode("resume") };
const ENTERED = { status: WAITING, ticketToken: new TextEncoder().encode("token"), expiresInMs: 60_000n };
const REQUEST = { matchmakingSetId: 11, sessionComposition: { players: [{ userId: "ann" }] } };

/** Serves the script while the body runs. */
const withScript = (script: Script, body: (client: Client) => Promise<void>, options?: ClientOptions) => async () => {
  const server = createServer(connectNodeAdapter({ routes: (router) => router.service(QueueService, script) }));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    await body(connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, options));
  } finally {
    server.close();
    server.closeAllConnections();
  }
};

function failure(code: Code, reason: string, retrySeconds?: bigint): ConnectError {
  const error = new ConnectError("scripted", code);
  error.details.push({ desc: ErrorInfoSchema, value: create(ErrorInfoSchema, { reason, domain: "fireteam" }) });
  if (retrySeconds !== undefined) {
    error.details.push({ desc: RetryInfoSchema, value: create(RetryInfoSchema, { retryDelay: { seconds: retrySeconds } }) });
  }
  return error;
}

const keys: string[] = [];
test("a repeated entry has the same idempotency key", withScript({
  enter: ({ idempotencyKey }) => {
    if (keys.push(idempotencyKey) < 3) {
      throw failure(Code.Unavailable, "STORE_UNAVAILABLE");
    }
    return ENTERED;
  },
}, async (client) => {
  await client.enterQueue(REQUEST);
  assert.equal(keys.length, 3);
  assert.equal(new Set(keys).size, 1);
}, { retryPolicy: { maxAttempts: 4, initialBackoffMs: 1, maxBackoffMs: 10 } }));

let drained = 0;
test("a call is not repeated if the server asks for more than the longest pause", withScript({
  enter: () => {
    drained += 1;
    throw failure(Code.Unavailable, "DRAINING", 3600n);
  },
}, async (client) => {
  const error = await client.enterQueue(REQUEST).catch((error: unknown) => error);
  assert.ok(error instanceof FireteamError);
  assert.deepEqual([error.retryAfterMs, error.reason, drained], [3_600_000, "DRAINING", 1]);
}));

const tokens: (string | null)[] = [];
let issued = 0;
test("a call is repeated once with another token", withScript({
  enter: (_request, context: HandlerContext) => {
    tokens.push(context.requestHeader.get("authorization"));
    throw failure(Code.Unauthenticated, "CREDENTIALS_EXPIRED");
  },
}, async (client) => {
  const error = await client.enterQueue(REQUEST).catch((error: unknown) => error);
  assert.ok(error instanceof FireteamError && error.code === Code.Unauthenticated);
  assert.equal(tokens.length, 2);
  assert.notEqual(tokens[0], tokens[1]);
}, { token: () => `token-${issued++}` }));

let streams = 0;
test("a watch ends when the ticket has expired during an outage", withScript({
  enter: () => ({ ...ENTERED, expiresInMs: 3000n }),
  async *watch() {
    streams += 1;
    if (streams === 1) {
      yield { status: WAITING };
    }
    throw new ConnectError("scripted", Code.Unavailable);
  },
}, async (client) => {
  const ticket = await client.enterQueue(REQUEST);
  const began = performance.now();
  await assert.rejects(async () => { for await (const _ of ticket.watch()); }, TicketExpiredError);
  assert.ok(performance.now() - began >= 3000 && streams >= 2, `${performance.now() - began} ms, ${streams} streams`);
}));

const resumed: string[] = [];
test("a watch resumes after the last status", withScript({
  enter: () => ENTERED,
  async *watch({ tickets }) {
    resumed.push(new TextDecoder().decode(tickets[0]?.resumeToken));
    if (resumed.length === 1) {
      yield { status: WAITING };
      throw failure(Code.ResourceExhausted, "STREAM_LIMIT_REACHED");
    }
    yield { status: { ticketId: "t", state: TicketState.ENDED } };
  },
}, async (client) => {
  const states: TicketState[] = [];
  for await (const { state } of (await client.enterQueue(REQUEST)).watch()) {
    states.push(state);
  }
  assert.deepEqual(states, [TicketState.WAITING, TicketState.ENDED]);
  assert.deepEqual(resumed, ["", "resume"]);
}));

let silent = 0;
test("a watch of a match that is silent for the TTL is opened again", withScript({
  enter: () => ({ ...ENTERED, expiresInMs: 200n }),
  async *watch(_request, { signal }) {
    silent += 1;
    yield { status: { ticketId: "t", state: silent === 1 ? TicketState.MATCHED : TicketState.ENDED } };
    await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
  },
}, async (client) => {
  const states: TicketState[] = [];
  for await (const { state } of (await client.enterQueue(REQUEST)).watch()) {
    states.push(state);
  }
  assert.deepEqual([states, silent], [[TicketState.MATCHED, TicketState.ENDED], 2]);
}));

let refused = 0;
test("a watch of an unknown ticket fails at once", withScript({
  enter: () => ENTERED,
  async *watch() {
    refused += 1;
    throw failure(Code.NotFound, "TICKET_NOT_FOUND");
  },
}, async (client) => {
  const ticket = await client.enterQueue(REQUEST);
  await assert.rejects(ticket.watch().next(), (error) => error instanceof FireteamError && error.reason === "TICKET_NOT_FOUND");
  assert.equal(refused, 1);
}));

/** Ends of the streams that the next test opens. */
const ends = new EventEmitter();
const closed = [once(ends, "0"), once(ends, "1")];
let opened = 0;
test("a watch that is left closes its stream", { timeout: 60_000 }, withScript({
  enter: () => ENTERED,
  async *watch(_request, { signal }) {
    const number = opened++;
    yield { status: WAITING };
    await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
    ends.emit(String(number));
  },
}, async (client) => {
  const ticket = await client.enterQueue(REQUEST);
  for await (const _ of ticket.watch()) {
    break;
  }
  await closed[0];

  const aborted = new AbortController();
  const watch = ticket.watch({ signal: aborted.signal });
  await watch.next();
  const next = watch.next();
  aborted.abort(new Error("left"));
  await assert.rejects(next, /left/);
  await closed[1];
}));
