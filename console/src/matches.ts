// View "Matches": the latest matches, and one match whole.

import { create } from "@bufbuild/protobuf";
import { changeButton, confirmWithReason } from "./actions.js";
import { callLink, errorText, operator } from "./calls.js";
import { figure, h, panel, table } from "./dom.js";
import { count, decimal, duration, hash, shortId, time, words } from "./format.js";
import {
  CancelMatchRequestSchema,
  type FinishedMatch,
  type FinishedParty,
  GetMatchRequestSchema,
  type GetMatchResponse,
  ListMatchesRequestSchema,
  MatchStage,
  type MatchSummary,
} from "./gen/fireteam/v1/operator_pb.js";
import { Acceptance, MatchEndReason } from "./gen/fireteam/v1/queue_pb.js";
import type { RatingValue } from "./gen/fireteam/v1/ratings_pb.js";
import { live } from "./live.js";
import { setChoice, whenSetsAreKnown } from "./sets.js";

const setName = (set: number): string => {
  const name = live.latest?.sets.find((it) => it.matchmakingSetId === set)?.name ?? "";
  return name === "" ? `set ${set}` : name;
};

const stageText = (stage: MatchStage, reason: MatchEndReason): string =>
  stage === MatchStage.ENDED ? `ended: ${words(MatchEndReason[reason])}` : words(MatchStage[stage]);

const rating = (value: RatingValue | undefined): string =>
  value === undefined ? "–" : value.deviation === 0 ? decimal(value.rating) : `${decimal(value.rating)} ± ${decimal(value.deviation)}`;

function change(before: RatingValue | undefined, after: RatingValue | undefined): string {
  if (before === undefined || after === undefined) return "–";
  const difference = after.rating - before.rating;
  return `${difference < 0 ? "−" : "+"}${decimal(Math.abs(difference))}`;
}

function matchTable(matches: readonly MatchSummary[]): HTMLElement {
  return table(
    "Matches",
    [
      { title: "Match", cell: (match) => h("a", { href: `#matches?match=${match.matchId}`, title: match.matchId }, shortId(match.matchId)) },
      { title: "Set", cell: (match) => setName(match.matchmakingSetId) },
      { title: "Stage", cell: (match) => stageText(match.stage, match.endReason) },
      { title: "Proposed", cell: (match) => time(match.proposedAtUnixMs), isNumber: true },
      { title: "Play began", cell: (match) => time(match.startedAtUnixMs), isNumber: true },
      { title: "Quality", cell: (match) => decimal(match.quality), isNumber: true },
      { title: "Players", cell: (match) => count(match.players), isNumber: true },
      { title: "Region", cell: (match) => (match.region === "" ? "–" : match.region) },
    ],
    matches,
    "no match is known",
  );
}

async function showList(view: HTMLElement, signal: AbortSignal, parameters: URLSearchParams): Promise<void> {
  const set = parameters.has("set") ? Number(parameters.get("set")) : undefined;
  const onlyLive = parameters.get("live") === "1";
  const go = (toSet: number | undefined, toLive: boolean): void => {
    const query = new URLSearchParams();
    if (toSet !== undefined) query.set("set", String(toSet));
    if (toLive) query.set("live", "1");
    location.hash = `#matches?${query}`;
  };
  const box = h("input", { type: "checkbox", id: "live", checked: onlyLive });
  box.addEventListener("change", () => go(set, box.checked));
  const body = h("div");
  view.replaceChildren(
    h("h1", {}, "Matches"),
    h("div", { class: "controls" }, setChoice(set, "all sets", (chosen) => go(chosen, onlyLive)), h("span", {}, box, " ", h("label", { for: "live" }, "only matches that have not ended"))),
    body,
  );
  const request = create(ListMatchesRequestSchema, set === undefined ? { onlyLive, maxResults: 100 } : { onlyLive, maxResults: 100, matchmakingSetId: set });
  try {
    const { matches, truncated } = await operator.listMatches(request, { signal });
    body.replaceChildren(
      panel("Latest matches", [callLink("ListMatches", ListMatchesRequestSchema, request)], matchTable(matches), truncated && h("p", { class: "quiet" }, "there are more")),
    );
  } catch (error) {
    if (!signal.aborted) body.replaceChildren(h("p", { role: "alert", class: "bad" }, errorText(error)));
  }
}

function playerTable(match: GetMatchResponse): HTMLElement {
  const rows = match.tickets.flatMap((ticket) => ticket.players.map((player) => ({ ticket, player })));
  return table(
    "Players",
    [
      { title: "Team", cell: ({ ticket }) => String(ticket.team), isNumber: true },
      { title: "Player", cell: ({ player }) => h("code", { title: player.userKey }, shortId(player.userKey)) },
      { title: "Ticket", cell: ({ ticket }) => h("a", { href: `#why?ticket=${ticket.ticketId}`, title: ticket.ticketId }, shortId(ticket.ticketId)) },
      { title: "Entered", cell: ({ ticket }) => time(ticket.enteredAtUnixMs), isNumber: true },
      { title: "Waited until proposal", cell: ({ ticket }) => duration(match.proposedAtUnixMs - ticket.enteredAtUnixMs), isNumber: true },
      { title: "Reply", cell: ({ player }) => (player.acceptance === Acceptance.UNSPECIFIED ? "none" : words(Acceptance[player.acceptance])) },
      { title: "Left", cell: ({ player }) => time(player.leftAtUnixMs), isNumber: true },
      { title: "Host", cell: ({ player }) => (player.isHost ? "yes" : "") },
    ],
    rows,
    "no player is known",
  );
}

function resultPanel(result: FinishedMatch, call: HTMLElement): HTMLElement {
  const rows = result.sides.flatMap((side) => side.players.map((player) => ({ side, player })));
  const party = (it: FinishedParty): string => `${duration(it.waitedMs)}${it.roundTripMs === undefined ? "" : `, ${decimal(it.roundTripMs)} ms`}`;
  return panel(
    "Result",
    [call],
    h(
      "dl",
      { class: "figures" },
      figure("Reported", time(result.reportedAtUnixMs)),
      figure("Duration", duration(result.durationMs)),
      figure("Rating gap", decimal(result.ratingGap), "between the sides' means"),
      figure("Feedback", result.meanFeedback === undefined ? "–" : decimal(result.meanFeedback), `${count(result.feedbackCount)} players`),
    ),
    table(
      "Result by player",
      [
        { title: "Team", cell: ({ side }) => String(side.team), isNumber: true },
        { title: "Rank", cell: ({ side }) => String(side.rank), isNumber: true },
        { title: "Predicted", cell: ({ side }) => (side.winProbability === undefined ? "–" : `${decimal(side.winProbability * 100)} %`), isNumber: true },
        { title: "Player", cell: ({ player }) => h("code", { title: player.userKey }, shortId(player.userKey)) },
        { title: "Rating before", cell: ({ player }) => rating(player.before), isNumber: true },
        { title: "After", cell: ({ player }) => rating(player.after), isNumber: true },
        { title: "Change", cell: ({ player }) => change(player.before, player.after), isNumber: true },
      ],
      rows,
      "no side is known",
    ),
    h("p", { class: "quiet" }, `Parties, wait until play and round trip to the region: ${result.parties.map(party).join("; ")}`),
  );
}

function matchPanels(match: GetMatchResponse, cancel: () => void): HTMLElement[] {
  const request = create(GetMatchRequestSchema, { matchId: match.matchId });
  const call = () => callLink("GetMatch", GetMatchRequestSchema, request);
  const worst = match.worstPair?.roundTrip;
  const hasEnded = match.stage === MatchStage.ENDED;
  return [
    panel(
      `${setName(match.matchmakingSetId)}: ${stageText(match.stage, match.endReason)}`,
      [call()],
      h(
        "dl",
        { class: "figures" },
        figure("Proposed", time(match.proposedAtUnixMs)),
        figure("Play began", time(match.startedAtUnixMs)),
        figure("Stage ends in", duration(match.endsInMs)),
        figure("Host lost in", duration(match.hostLostInMs)),
        figure("Quality", decimal(match.quality)),
        figure("Worst round trip", worst === undefined ? "–" : `${decimal(worst.roundTripMs)} ms`),
        figure("Region", match.region === "" ? "–" : match.region),
        figure("Ruleset", hash(match.serviceConfigurationHash)),
      ),
      match.blockingRule !== "" && h("p", {}, `It has no game server because of ${match.blockingRule}.`),
      !hasEnded && h("p", {}, changeButton("Cancel match…", cancel)),
    ),
    panel("Players", [call()], playerTable(match)),
    ...(match.result === undefined ? [] : [resultPanel(match.result, call())]),
  ];
}

async function showMatch(view: HTMLElement, signal: AbortSignal, id: string): Promise<void> {
  const body = h("div");
  view.replaceChildren(h("h1", {}, "Match"), h("p", { class: "controls" }, h("code", {}, id), h("a", { href: "#matches" }, "other matches")), body);
  const load = async (): Promise<void> => {
    try {
      body.replaceChildren(...matchPanels(await operator.getMatch({ matchId: id }, { signal }), cancel));
    } catch (error) {
      if (!signal.aborted) body.replaceChildren(h("p", { role: "alert", class: "bad" }, errorText(error)));
    }
  };
  const cancel = (): void =>
    confirmWithReason("Cancel this match?", "Its tickets wait again with their waiting time. There is no result and no penalty.", "Cancel match", CancelMatchRequestSchema, "CancelMatch", { matchId: id }, async (reason) => {
      await operator.cancelMatch({ matchId: id, reason });
      await load();
    });
  await load();
}

/** Fills `view` with the latest matches, or with the match that `parameters` names. */
export function showMatches(view: HTMLElement, signal: AbortSignal, parameters: URLSearchParams): void {
  const match = parameters.get("match");
  whenSetsAreKnown(signal, () => void (match === null ? showList(view, signal, parameters) : showMatch(view, signal, match)));
}
