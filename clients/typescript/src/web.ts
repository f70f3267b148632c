// Connection of a browser: gRPC-Web by fetch.

import { createGrpcWebTransport } from "@connectrpc/connect-web";
import { Client, type ClientOptions } from "./client.js";

/** Client of the server at `baseUrl`, such as `https://match.example`. A page of another origin needs `--cors-origins` of the server. */
export function connect(baseUrl: string, options?: ClientOptions): Client {
  return new Client(createGrpcWebTransport({ baseUrl }), options);
}
