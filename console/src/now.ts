// View "Now": sets, waits, outcomes of matches, servers, and the map.

import { callLink } from "./calls.js";
import { lineChart } from "./chart.js";
import { figure, h, panel, table } from "./dom.js";
import { count, duration, time, words } from "./format.js";
import type { SetOverview } from "./gen/fireteam/v1/operator_pb.js";
import { MatchEndReason } from "./gen/fireteam/v1/queue_pb.js";
import { live, type Moment } from "./live.js";
import { worldMap } from "./map.js";

/** Period over which matches a minute are counted, milliseconds. */
const RATE_MS = 60_000;

/** Set whose charts are shown; undefined: all sets. It outlives a change of the view. */
let chosen: number | undefined;

const sum = (moment: Moment, value: (set: SetOverview) => bigint): number =>
  [...moment.sets.values()]
    .filter((set) => chosen === undefined || set.matchmakingSetId === chosen)
    .reduce((total, set) => total + Number(value(set)), 0);

const endedFor = (reason: MatchEndReason) => (set: SetOverview): bigint =>
  set.endedMatches.find((it) => it.endReason === reason)?.count ?? 0n;

/** Matches that ended for one reason in the minute before each moment. A restart of the server begins again at 0. */
function ratePoints(history: readonly Moment[], reason: MatchEndReason): [number, number][] {
  let first = 0;
  return history.map((moment, index) => {
    while (first < index && (history[first]?.at ?? 0) < moment.at - RATE_MS) first += 1;
    const before = history[first] ?? moment;
    return [moment.at, Math.max(0, sum(moment, endedFor(reason)) - sum(before, endedFor(reason)))];
  });
}

function charts(): HTMLElement[] {
  const history = live.history;
  const x = (at: number): string => time(at);
  const points = (value: (set: SetOverview) => bigint): [number, number][] => history.map((it) => [it.at, sum(it, value)]);
  const waits = (value: (set: SetOverview) => bigint | undefined): [number, number | undefined][] =>
    history.map((moment) => {
      const of = [...moment.sets.values()].filter((set) => chosen === undefined || set.matchmakingSetId === chosen);
      const known = of.flatMap((set) => value(set) ?? []).map(Number);
      return [moment.at, known.length === 0 ? undefined : Math.max(...known)];
    });
  const last = history.at(-1);
  const reasons = Object.values(MatchEndReason).filter(
    (it): it is MatchEndReason => typeof it === "number" && last !== undefined && sum(last, endedFor(it)) > 0,
  );
  const call = callLink("WatchOverview");
  const again = () => call.cloneNode(true) as HTMLElement;
  return [
    panel(
      "Tickets and matches",
      [call],
      lineChart(
        [
          { name: "waiting tickets", points: points((set) => set.waitingTickets) },
          { name: "matching", points: points((set) => set.readyCheckMatches + set.placingMatches) },
          { name: "playing", points: points((set) => set.playingMatches) },
        ],
        { label: "Waiting tickets, matches before play and matches in play over time", x, y: count, least: 2 },
      ),
    ),
    panel(
      chosen === undefined ? "Waits, the longest of all sets" : "Waits",
      [again()],
      lineChart(
        [
          { name: "median", points: waits((set) => set.waitP50Ms) },
          { name: "90th percentile", points: waits((set) => set.waitP90Ms) },
        ],
        { label: "Waits of tickets matched in the last hour, over time", x, y: duration },
      ),
    ),
    panel(
      "Matches a minute by outcome",
      [again()],
      lineChart(
        reasons.map((reason) => ({ name: words(MatchEndReason[reason]), points: ratePoints(history, reason) })),
        { label: "Matches that ended in the last minute by reason, over time", x, y: count, least: 2 },
      ),
    ),
    panel("Places", [again()], worldMap(live.map)),
  ];
}

function setTable(): HTMLElement {
  const sets = live.latest?.sets ?? [];
  const choose = (set: SetOverview): HTMLElement =>
    h(
      "button",
      {
        type: "button",
        class: "link",
        "aria-pressed": String(chosen === set.matchmakingSetId),
        click: () => {
          chosen = chosen === set.matchmakingSetId ? undefined : set.matchmakingSetId;
          for (const listener of live.listeners) listener();
        },
      },
      set.name === "" ? `set ${set.matchmakingSetId}` : set.name,
    );
  const number = (title: string, cell: (set: SetOverview) => string) => ({ title, cell, isNumber: true });
  return table(
    "Sets",
    [
      { title: "Set", cell: choose },
      number("Id", (set) => String(set.matchmakingSetId)),
      number("Waiting", (set) => count(set.waitingTickets)),
      number("Players", (set) => count(set.waitingPlayers)),
      number("Ready check", (set) => count(set.readyCheckMatches)),
      number("Placing", (set) => count(set.placingMatches)),
      number("Playing", (set) => count(set.playingMatches)),
      number("Wait p50", (set) => duration(set.waitP50Ms)),
      number("Wait p90", (set) => duration(set.waitP90Ms)),
      number("Longest", (set) => (set.waitingTickets === 0n ? "–" : duration(set.longestWaitMs))),
      number("Sessions", (set) => count(set.sessions)),
      number("Servers", (set) => count(set.gameServers)),
      number("Last pass", (set) => (set.lastPassUs === 0n ? "–" : `${(Number(set.lastPassUs) / 1_000).toFixed(1)} ms`)),
    ],
    sets,
    "no ruleset is loaded",
  );
}

function serverFigures(): HTMLElement {
  const { server, sets = [] } = live.latest ?? {};
  const total = (value: (set: SetOverview) => bigint): string => count(sets.reduce((all, set) => all + value(set), 0n));
  return h(
    "dl",
    { class: "figures" },
    figure("Waiting players", total((set) => set.waitingPlayers)),
    figure("Waiting tickets", total((set) => set.waitingTickets)),
    figure("Matching", total((set) => set.readyCheckMatches + set.placingMatches)),
    figure("Playing", total((set) => set.playingMatches)),
    figure("Servers", count(server?.liveServers ?? 0), server === undefined ? "" : `version ${server.version}`),
    figure("Feed lag", server?.feedLagMs === undefined ? "none" : duration(server.feedLagMs), server?.feedLagMs === undefined ? "the store has one server" : ""),
    figure("Commits", server?.commitsFailing === true ? "fail" : "succeed"),
    figure("Queues run here", count(server?.queuesRunHere ?? 0)),
  );
}

/** Fills `view` and keeps it current until `signal` ends. */
export function showNow(view: HTMLElement, signal: AbortSignal): void {
  const [figures, sets, rest] = [h("div"), h("div"), h("div", { class: "grid-of-panels" })];
  view.replaceChildren(h("h1", {}, "Now"), figures, panel("Sets", [callLink("WatchOverview")], sets), rest);
  const draw = (): void => {
    if (live.latest === undefined) return;
    const focused = (document.activeElement as HTMLElement | null)?.textContent;
    const hadFocus = sets.contains(document.activeElement);
    const open = rest.querySelector("details[open]") !== null;
    figures.replaceChildren(serverFigures());
    sets.replaceChildren(setTable());
    if (hadFocus) [...sets.querySelectorAll("button")].find((it) => it.textContent === focused)?.focus();
    // A call that is being read stays as it is.
    if (!open) rest.replaceChildren(...charts());
  };
  live.listeners.add(draw);
  signal.addEventListener("abort", () => live.listeners.delete(draw));
  draw();
}
