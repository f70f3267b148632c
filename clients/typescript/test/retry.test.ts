// Pauses between attempts, and errors of transports.

import assert from "node:assert/strict";
import { test } from "node:test";
import { create } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { BadRequestSchema, ErrorInfoSchema, RetryInfoSchema } from "../src/gen/google/rpc/error_details_pb.js";
import { DEFAULT_RETRY_POLICY, FireteamError } from "../src/index.js";
import { ErrorReason } from "../src/pb.js";
import { idempotencyKey, pauseAfter, sleep, watchPause } from "../src/retry.js";

const POLICY = { maxAttempts: 4, initialBackoffMs: 100, maxBackoffMs: 300 };

const unavailable = (pushback?: string) =>
  new FireteamError(new ConnectError("later", Code.Unavailable, pushback ? { "grpc-retry-pushback-ms": pushback } : {}));

test("the pause doubles, has jitter, and follows the server", () => {
  for (const [attempt, failure, jitter, expected] of [
    [1, unavailable(), 0, 50],
    [1, unavailable(), 1, 100],
    [2, unavailable(), 1, 200],
    [3, unavailable(), 1, 300],
    [4, unavailable(), 1, undefined],
    [1, unavailable("200"), 0, 200],
    [1, unavailable("200"), 1, 250],
    [1, unavailable("301"), 0, undefined],
    [1, unavailable("-1"), 0, undefined],
    [1, new FireteamError(new ConnectError("none", Code.NotFound)), 0, undefined],
  ] as const) {
    assert.equal(pauseAfter(POLICY, attempt, failure, jitter), expected, `${attempt} ${failure.retryAfterMs} ${jitter}`);
  }
});

test("the pause of a watch grows with the outage", () => {
  assert.equal(watchPause(DEFAULT_RETRY_POLICY, 0, 0, 1), 200);
  assert.equal(watchPause(DEFAULT_RETRY_POLICY, 8000, 0, 1), 2000);
  assert.equal(watchPause(DEFAULT_RETRY_POLICY, 60_000, 0, 1), 5000);
  assert.equal(watchPause(DEFAULT_RETRY_POLICY, 0, 7000, 1), 7000);
});

test("a pause ends with its signal", async () => {
  const aborted = new AbortController();
  const pause = sleep(60_000, aborted.signal);
  aborted.abort(new Error("left"));
  await assert.rejects(pause, /left/);
});

test("an idempotency key is 128 random bits", () => {
  assert.match(idempotencyKey(), /^[0-9a-f]{32}$/);
  assert.notEqual(idempotencyKey(), idempotencyKey());
});

test("an error has the details of the server", () => {
  const violation = { field: "session_composition.players[1].skill", description: "a finite number" };
  const error = new FireteamError(
    new ConnectError("no", Code.InvalidArgument, undefined, [
      { desc: ErrorInfoSchema, value: create(ErrorInfoSchema, { reason: "STALE_CONFIGURATION", metadata: { current_hash: "7" } }) },
      { desc: RetryInfoSchema, value: create(RetryInfoSchema, { retryDelay: { seconds: 1n, nanos: 250_000_000 } }) },
      { desc: BadRequestSchema, value: create(BadRequestSchema, { fieldViolations: [violation] }) },
    ]),
  );
  assert.deepEqual(error.fields, [violation]);
  assert.equal(error.retryAfterMs, 1250);
  assert.deepEqual({ ...error.metadata }, { current_hash: "7" });
  assert.equal(error.errorReason, ErrorReason.STALE_CONFIGURATION);
  assert.equal(error.message, "no; session_composition.players[1].skill: a finite number");
});

test("a lost connection is UNAVAILABLE, and an error of the server is not", () => {
  assert.equal(new FireteamError(new TypeError("fetch failed")).code, Code.Unavailable);
  const info = { desc: ErrorInfoSchema, value: create(ErrorInfoSchema, { reason: "INTERNAL" }) };
  assert.equal(new FireteamError(new ConnectError("failed", Code.Internal, undefined, [info])).code, Code.Internal);
  assert.equal(new FireteamError(new ConnectError("a new reason", Code.NotFound)).errorReason, ErrorReason.UNSPECIFIED);
});
