// Client of the fireteam matchmaking server. `@fireteam/client/web` connects it in a browser, `@fireteam/client/node` in Node.

export { Advertisement } from "./advertisement.js";
export { Client, type CallOptions, type ClientOptions, type TokenSource } from "./client.js";
export { FireteamError, TicketExpiredError, type FieldViolation } from "./errors.js";
export { DEFAULT_RETRY_POLICY, type RetryPolicy } from "./retry.js";
export { Reservation, Search } from "./search.js";
export type { TeamRanks } from "./team_ranks.js";
export { Ticket } from "./ticket.js";
