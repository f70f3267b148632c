// Calls of the operator's service. They are the page's only requests beside its own files.

import { type DescMessage, type MessageShape, toJsonString } from "@bufbuild/protobuf";
import { type Client, Code, ConnectError, createClient, type Interceptor } from "@connectrpc/connect";
import { createGrpcWebTransport } from "@connectrpc/connect-web";
import { h } from "./dom.js";
import { OperatorService } from "./gen/fireteam/v1/operator_pb.js";

const TOKEN_KEY = "fireteam-token";

/** The operator's token, until the tab is closed. Empty: none. */
export const token = {
  get: (): string => sessionStorage.getItem(TOKEN_KEY) ?? "",
  set: (value: string): void => (value === "" ? sessionStorage.removeItem(TOKEN_KEY) : sessionStorage.setItem(TOKEN_KEY, value)),
};

const authorize: Interceptor = (next) => (request) => {
  const value = token.get();
  if (value !== "") request.header.set("authorization", `Bearer ${value}`);
  return next(request);
};

/** Client of the server that the page is from. */
export const operator: Client<typeof OperatorService> = createClient(
  OperatorService,
  createGrpcWebTransport({ baseUrl: location.origin, interceptors: [authorize] }),
);

/** Message of an error for people. */
export function errorText(error: unknown): string {
  const { code, rawMessage } = ConnectError.from(error);
  return code === Code.Unavailable || rawMessage === "Failed to fetch" ? `the server cannot be reached: ${rawMessage}` : rawMessage;
}

/** The call needs a token, or another one. */
export const needsToken = (error: unknown): boolean => ConnectError.from(error).code === Code.Unauthenticated;

/** The operator's role does not allow the call. */
export const isForbidden = (error: unknown): boolean => ConnectError.from(error).code === Code.PermissionDenied;

/** Text in single quotes for a shell. */
export const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

/** The same call as a line for a shell. */
export function grpcurl<Desc extends DescMessage>(method: string, schema?: Desc, message?: MessageShape<Desc>): string {
  const json = schema === undefined || message === undefined ? "{}" : toJsonString(schema, message);
  const parts = ["grpcurl"];
  if (location.protocol === "http:") parts.push("-plaintext");
  if (token.get() !== "") parts.push('-H "authorization: Bearer $FIRETEAM_TOKEN"');
  if (json !== "{}") parts.push("-d", quoted(json));
  const port = location.port === "" ? (location.protocol === "http:" ? "80" : "443") : location.port;
  parts.push(`${location.hostname}:${port}`, `fireteam.v1.OperatorService/${method}`);
  return parts.join(" ");
}

/** Button that shows the call behind a figure as a line for a shell. */
export function callLink<Desc extends DescMessage>(method: string, schema?: Desc, message?: MessageShape<Desc>): HTMLElement {
  const line = h("code", {}, grpcurl(method, schema, message));
  return h("details", { class: "call" }, h("summary", { title: "The same call as a grpcurl line" }, method), line);
}
