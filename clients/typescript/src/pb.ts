// Generated messages and services, for requests and for the stubs of a client.

export * from "./gen/fireteam/v1/allocation_pb.js";
export * from "./gen/fireteam/v1/errors_pb.js";
export * from "./gen/fireteam/v1/latency_pb.js";
export * from "./gen/fireteam/v1/matchmaking_pb.js";
export * from "./gen/fireteam/v1/queue_pb.js";
export * from "./gen/fireteam/v1/ratings_pb.js";
