// One player's game: queue, ready check, match. Runs in a browser and in Node.

import type { Client } from "../src/index.js";
import { type MatchStatus, TicketEndReason, TicketState } from "../src/pb.js";

/** What a player's game tells: each step as a line, and the match that it joins. */
export interface PlayerEvents {
  log(line: string): void;
  joined(match: MatchStatus): void;
}

/** Address of the match's game server, as it published it. */
export function addressOf(match: MatchStatus): string {
  const host = match.assignment?.host;
  return host?.case === "gameServer" ? new TextDecoder().decode(host.value.connectData) : "no game server";
}

/**
 * Enters the queue, accepts each proposed match, joins the match, and returns it when it has been played. When `signal` is aborted, the
 * player leaves.
 */
export async function play(
  client: Client,
  setId: number,
  userId: string,
  events: PlayerEvents,
  signal?: AbortSignal,
): Promise<MatchStatus> {
  const party = { players: [{ userId }] };
  const ticket = await client.enterQueue({ matchmakingSetId: setId, sessionComposition: party }, { signal });
  events.log(`${userId}: in the queue`);
  try {
    let accepted = "";
    let playing = "";
    for await (const { state, foundMatch, endReason } of ticket.watch({ signal })) {
      if (state === TicketState.PROPOSED && foundMatch && foundMatch.matchId !== accepted) {
        // The status is repeated when the other player accepts.
        accepted = foundMatch.matchId;
        await ticket.respond(accepted, true, { signal });
        events.log(`${userId}: accepted`);
      }
      if (state === TicketState.MATCHED && foundMatch && foundMatch.matchId !== playing) {
        playing = foundMatch.matchId;
        events.log(`${userId}: joins team ${foundMatch.team} at ${addressOf(foundMatch)}`);
        events.joined(foundMatch);
      }
      if (state === TicketState.ENDED) {
        if (endReason === TicketEndReason.PLAYED && foundMatch) {
          return foundMatch;
        }
        throw new Error(`the ticket has ended: ${TicketEndReason[endReason]}`);
      }
    }
    throw new Error("the watch ended before the ticket");
  } catch (error) {
    if (signal?.aborted) {
      await ticket.leave();
    }
    throw error;
  }
}
