// The stream of overviews, and the last quarter of an hour of it. It runs while the page is visible.

import { errorText, isForbidden, needsToken, operator } from "./calls.js";
import type { SetOverview, WatchOverviewResponse, WorldMap } from "./gen/fireteam/v1/operator_pb.js";

/** Longest history, milliseconds. */
const HISTORY_MS = 15 * 60_000;

/** Delays between attempts to reconnect, milliseconds. */
const RETRY_MS = [500, 1_000, 2_000, 5_000, 10_000];

/** Figures of one set, or of all sets, at one moment. */
export interface Moment {
  readonly at: number;
  readonly sets: ReadonlyMap<number, SetOverview>;
}

class Live {
  latest: WatchOverviewResponse | undefined;
  map: WorldMap | undefined;
  readonly history: Moment[] = [];
  /** Why there is no stream now. Empty: there is one. */
  problem = "connecting";
  readonly listeners = new Set<() => void>();
  /** Called when the server wants a token, or another one. */
  onTokenNeeded: (error: unknown) => void = () => undefined;
  private stop = new AbortController();
  private isRunning = false;

  /** Starts the stream, or starts it again with another token. */
  restart(): void {
    this.stop.abort();
    this.stop = new AbortController();
    this.isRunning = true;
    void this.run(this.stop.signal);
  }

  /** Streams only while the page is seen, so that a forgotten tab costs the server nothing. */
  followVisibility(): void {
    document.addEventListener("visibilitychange", () => {
      if (document.visibilityState === "visible" && !this.isRunning) {
        this.restart();
      } else if (document.visibilityState === "hidden") {
        this.isRunning = false;
        this.stop.abort();
      }
    });
  }

  private async run(signal: AbortSignal): Promise<void> {
    let failures = 0;
    while (!signal.aborted) {
      try {
        for await (const response of operator.watchOverview({}, { signal })) {
          failures = 0;
          this.accept(response);
        }
      } catch (error) {
        if (signal.aborted) return;
        if (needsToken(error) || isForbidden(error)) {
          this.problem = errorText(error);
          this.isRunning = false;
          this.onTokenNeeded(error);
          return;
        }
        this.problem = errorText(error);
        if (failures > 0) this.notify();
      }
      const delay = RETRY_MS[Math.min(failures, RETRY_MS.length - 1)] ?? 1_000;
      failures += 1;
      await new Promise((resolve) => setTimeout(resolve, delay));
    }
  }

  private accept(response: WatchOverviewResponse): void {
    this.latest = response;
    this.map = response.worldMap ?? this.map;
    this.problem = "";
    const at = Number(response.atUnixMs);
    this.history.push({ at, sets: new Map(response.sets.map((set) => [set.matchmakingSetId, set])) });
    while ((this.history[0]?.at ?? at) < at - HISTORY_MS) this.history.shift();
    this.notify();
  }

  private notify(): void {
    for (const listener of this.listeners) listener();
  }
}

/** The stream of this page. */
export const live = new Live();
