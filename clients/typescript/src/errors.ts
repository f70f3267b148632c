// Errors of failed calls, with the details that the server sent.

import { durationMs } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError } from "@connectrpc/connect";
import { BadRequestSchema, ErrorInfoSchema, RetryInfoSchema } from "./gen/google/rpc/error_details_pb.js";
import { ErrorReason } from "./pb.js";

/** Trailer with the server's retry delay in milliseconds; a negative value forbids a retry. */
const PUSHBACK_TRAILER = "grpc-retry-pushback-ms";

/** Codes that a transport gives to a lost connection. The server's own errors always have a reason. */
const LOST_CONNECTION_CODES: readonly Code[] = [Code.Unknown, Code.Internal, Code.Aborted, Code.DataLoss];

/** Reasons for which no later call of this client can succeed either. */
const FINAL_REASONS: readonly string[] = ["UNKNOWN_MATCHMAKING_SET", "SET_RETIRED", "TICKET_NOT_FOUND"];

/** Codes of the same kind: the request is invalid, or the caller may not make it. */
const FINAL_CODES: readonly Code[] = [Code.InvalidArgument, Code.Unauthenticated, Code.PermissionDenied, Code.Unimplemented];

/** Invalid field of a request. */
export interface FieldViolation {
  /** Path in the request, such as `session_composition.players[1].skill`. */
  readonly field: string;
  /** Description of a valid value. */
  readonly description: string;
}

/** Error of a failed call. */
export class FireteamError extends Error {
  override readonly name = "FireteamError";
  /** gRPC status code. A lost connection is `Code.Unavailable`. */
  readonly code: Code;
  /** Value of `ErrorReason` without its prefix, such as `SEATS_TAKEN`. Empty if the call failed on the way to the server. */
  readonly reason: string;
  /** Details of the reason, such as the current ruleset hash. */
  readonly metadata: Readonly<Record<string, string>>;
  /** Invalid fields of the request. */
  readonly fields: readonly FieldViolation[];
  /** Retry delay in milliseconds; `undefined` if the server gave none. */
  readonly retryAfterMs: number | undefined;
  /** Whether the server forbids a retry. */
  readonly retryForbidden: boolean;

  /** Converts the error of a transport. */
  constructor(cause: unknown) {
    const error = ConnectError.from(cause);
    const fields = error.findDetails(BadRequestSchema).flatMap((request) => request.fieldViolations);
    super([error.rawMessage, ...fields.map(({ field, description }) => `${field}: ${description}`)].join("; "), { cause });
    const info = error.findDetails(ErrorInfoSchema)[0];
    const retry = error.findDetails(RetryInfoSchema)[0]?.retryDelay;
    const pushback = error.metadata.get(PUSHBACK_TRAILER);
    // gRPC proposal A6: a negative or invalid pushback forbids a retry.
    this.retryForbidden = pushback !== null && !/^\d{1,9}$/.test(pushback);
    const delays = [retry && durationMs(retry), pushback !== null && !this.retryForbidden ? Number(pushback) : undefined];
    const known = delays.filter((delay) => delay !== undefined);
    this.retryAfterMs = known.length > 0 ? Math.max(...known) : undefined;
    this.code = info === undefined && LOST_CONNECTION_CODES.includes(error.code) ? Code.Unavailable : error.code;
    this.reason = info?.reason ?? "";
    this.metadata = info?.metadata ?? {};
    this.fields = fields.map(({ field, description }) => ({ field, description }));
  }

  /** The reason as a value of the contract; `UNSPECIFIED` if this client does not know it. */
  get errorReason(): ErrorReason {
    return ErrorReason[this.reason as keyof typeof ErrorReason] ?? ErrorReason.UNSPECIFIED;
  }

  /** Whether no later call of this client can succeed either. */
  get isFinal(): boolean {
    return FINAL_CODES.includes(this.code) || FINAL_REASONS.includes(this.reason);
  }
}

/** A waiting ticket was not heard of for its TTL. Enter the queue again. */
export class TicketExpiredError extends Error {
  override readonly name = "TicketExpiredError";

  /** `cause` is the last failure of the watch. */
  constructor(cause: unknown) {
    super("ticket was not heard of for its TTL and has expired; enter the queue again", { cause });
  }
}

/** Error of a response that lacks a field. */
export function missingField(name: string): Error {
  return new Error(`response lacks the field \`${name}\`; use a client that matches the server's version`);
}
