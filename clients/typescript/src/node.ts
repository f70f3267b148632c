// Connection of Node: gRPC over HTTP/2.

import { createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";
import { Client, type ClientOptions } from "./client.js";

/** Settings of a client in Node. */
export interface NodeClientOptions extends ClientOptions {
  /** Interval of HTTP/2 pings while a call or a watch is open, milliseconds. Routers drop idle connections after minutes. Default: 30000. */
  readonly pingIntervalMs?: number;
}

/**
 * Client of the server at `baseUrl`, such as `http://127.0.0.1:50051` or `https://match.example`. It connects with the first call, and again
 * after each outage.
 */
export function connect(baseUrl: string, options: NodeClientOptions = {}): Client {
  // Without pings on an idle connection: the manager would send one, and throw, after a connection with open streams was closed. An idle
  // connection is checked before it is used again.
  const pings = { pingIntervalMs: options.pingIntervalMs ?? 30_000, pingIdleConnection: false };
  const sessionManager = new Http2SessionManager(baseUrl, pings);
  return new Client(createGrpcTransport({ baseUrl, sessionManager }), options, () => sessionManager.abort());
}
