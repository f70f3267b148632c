// View "Why?": waiting tickets of a set, refusals by rule, and one ticket explained.

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { changeButton, confirmWithReason } from "./actions.js";
import { callLink, errorText, operator } from "./calls.js";
import { figure, h, panel, table } from "./dom.js";
import { count, decimal, duration, shortId, time, words } from "./format.js";
import {
  DismissTicketRequestSchema,
  type ExplainLimit,
  ExplainRequestSchema,
  type ExplainResponse,
  GateReason,
  GetStatisticsRequestSchema,
  ListTicketsRequestSchema,
  type NearMiss,
  type RuleCount,
  type TicketEvent,
  TicketEventKind,
  type WaitingTicket,
} from "./gen/fireteam/v1/operator_pb.js";
import { MatchEndReason } from "./gen/fireteam/v1/queue_pb.js";
import { busiestSet, setChoice, whenSetsAreKnown } from "./sets.js";

/** Address of this view with these parameters. */
const address = (parameters: Record<string, string | number | undefined>): string => {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) if (value !== undefined && value !== "") query.set(name, String(value));
  return `#why?${query}`;
};

const ticketLink = (id: string): HTMLElement => h("a", { href: address({ ticket: id }), title: id }, shortId(id));
const matchLink = (id: string): HTMLElement => h("a", { href: `#matches?match=${id}`, title: id }, shortId(id));
const limitText = (limits: readonly ExplainLimit[]): string =>
  limits.length === 0 ? "a wish or bots" : limits.map((limit) => `${limit.name} to ${decimal(limit.value)}`).join(", ");

/** Bars of refusals, the most frequent first. */
function refusalBars(refusals: readonly RuleCount[], none: string): HTMLElement {
  if (refusals.length === 0) return h("p", { class: "none" }, none);
  const sorted = [...refusals].sort((one, other) => Number(other.count - one.count));
  const most = Number(sorted[0]?.count ?? 1n);
  return h(
    "div",
    {},
    ...sorted.map(({ rule, count: number }) =>
      h("div", { class: "bar" }, h("span", {}, rule), h("meter", { min: 0, max: most, value: Number(number), "aria-label": rule }), h("b", {}, count(number))),
    ),
  );
}

function eventText(event: TicketEvent): (Node | string)[] {
  switch (event.kind) {
    case TicketEventKind.ENTERED:
      return ["entered the queue"];
    case TicketEventKind.WIDENED:
      return [`widened: ${limitText(event.limits)}`];
    default: {
      const end = event.endReason === MatchEndReason.UNSPECIFIED ? "not ended" : words(MatchEndReason[event.endReason]);
      const declined = event.declined === 0 ? "" : `, ${event.declined} declined`;
      return ["match ", matchLink(event.matchId), ` was proposed: ${end}${declined}`];
    }
  }
}

function missTable(misses: readonly NearMiss[]): HTMLElement {
  const number = (value: number | undefined): string => (value === undefined ? "–" : decimal(value));
  return table(
    "Nearest tickets",
    [
      { title: "Ticket", cell: (miss) => ticketLink(miss.ticketId) },
      { title: "First rule", cell: (miss) => miss.rule },
      { title: "Rules", cell: (miss) => count(miss.failedRules), isNumber: true },
      { title: "Measured", cell: (miss) => number(miss.measured), isNumber: true },
      { title: "Limit", cell: (miss) => number(miss.limit), isNumber: true },
      { title: "Round trip", cell: (miss) => (miss.roundTrip === undefined ? "–" : `${decimal(miss.roundTrip.roundTripMs)} ms`), isNumber: true },
    ],
    misses,
    "no other ticket is refused",
  );
}

/** Reason for the wait in one sentence. */
function verdict(explained: ExplainResponse): string {
  if (explained.matchesNow) return "The next pass matches this ticket.";
  if (explained.gateReason !== GateReason.UNSPECIFIED) return `No pass runs: ${words(GateReason[explained.gateReason])}.`;
  return `It waits because of the rule ${explained.blockingRule === "" ? "–" : explained.blockingRule}.`;
}

function explanation(id: string, explained: ExplainResponse, dismiss: () => void): HTMLElement[] {
  const request = create(ExplainRequestSchema, { ticketId: id, maxNearest: 10 });
  const call = () => callLink("Explain", ExplainRequestSchema, request);
  const relaxation = explained.smallestRelaxation?.message;
  const next = explained.nextWidening;
  const limits = explained.limits.map((limit) => `${limit.name} ${decimal(limit.value)}`);
  if (explained.range !== undefined) limits.push(`window ±${explained.range} buckets`);
  const change = relaxation ?? (explained.matchesNow ? "none is needed" : "no single change");
  const widening =
    next === undefined
      ? "its limits are as wide as they get"
      : `in ${duration(next.inMs)}: ${limitText(next.limits)}; lets in ${count(next.newlyCompatible)}, then ${count(next.compatible)} compatible`;
  const answer = panel(
    verdict(explained),
    [call()],
    h(
      "dl",
      { class: "figures" },
      figure("Waited", duration(explained.waitedMs)),
      figure("Party", count(explained.partySize), explained.group === "" ? "" : `group ${explained.group}`),
      figure("Rating", decimal(explained.rating)),
      figure("Candidates", count(explained.candidates), explained.truncated ? "the nearest of the queue" : "all others of the queue"),
      figure("Compatible", count(explained.compatible)),
    ),
    h("h3", {}, "Smallest change that matches it now"),
    h("p", { id: "relaxation" }, change),
    h("h3", {}, "Next widening"),
    h("p", { id: "widening" }, widening),
    h("h3", {}, "Limits now"),
    h("p", {}, limits.length === 0 ? "none" : limits.join(", ")),
    h("p", {}, changeButton("Dismiss ticket…", dismiss)),
  );
  const events = explained.history.map((event) => h("li", {}, h("time", {}, time(event.atUnixMs)), h("span", {}, ...eventText(event))));
  return [
    h("div", {}, answer, panel("Refusals by rule", [call()], refusalBars(explained.refusals, "no rule refuses another ticket"))),
    h("div", {}, panel("Life of the ticket", [call()], h("ol", { class: "life" }, ...events)), panel("Nearly matched with", [call()], missTable(explained.nearMisses))),
  ];
}

async function showTicket(view: HTMLElement, signal: AbortSignal, id: string): Promise<void> {
  const body = h("div", { class: "grid-of-panels" });
  view.replaceChildren(h("h1", {}, "Why does this ticket wait?"), h("p", { class: "controls" }, h("code", {}, id), h("a", { href: "#why" }, "other tickets")), body);
  const load = async (): Promise<void> => {
    try {
      const explained = await operator.explain({ ticketId: id, maxNearest: 10 }, { signal });
      body.replaceChildren(...explanation(id, explained, dismiss));
    } catch (error) {
      if (!signal.aborted) body.replaceChildren(h("p", { role: "alert", class: "bad" }, errorText(error)));
    }
  };
  const dismiss = (): void =>
    confirmWithReason("Dismiss this ticket?", "Its party leaves the queue without a penalty.", "Dismiss ticket", DismissTicketRequestSchema, "DismissTicket", { ticketId: id }, async (reason) => {
      await operator.dismissTicket({ ticketId: id, reason });
      await load();
    });
  await load();
}

function ticketTable(tickets: readonly WaitingTicket[]): HTMLElement {
  return table(
    "Waiting tickets",
    [
      { title: "Ticket", cell: (ticket) => ticketLink(ticket.ticketId) },
      { title: "Waited", cell: (ticket) => duration(ticket.waitedMs), isNumber: true },
      { title: "Players", cell: (ticket) => count(ticket.partySize), isNumber: true },
      { title: "Waits because of", cell: (ticket) => (ticket.blockingRule === "" ? "not known here" : ticket.blockingRule) },
      { title: "Nearest region", cell: (ticket) => (ticket.nearestRegion === "" ? "–" : ticket.nearestRegion) },
      { title: "Silo", cell: (ticket) => String(ticket.siloId), isNumber: true },
    ],
    tickets,
    "no ticket waits here",
  );
}

async function showSet(view: HTMLElement, signal: AbortSignal, parameters: URLSearchParams): Promise<void> {
  const set = parameters.has("set") ? Number(parameters.get("set")) : busiestSet();
  const [region, rule] = [parameters.get("region") ?? "", parameters.get("rule") ?? ""];
  const go = (changed: Record<string, string | number | undefined>): void => {
    location.hash = address({ set, region, rule, ...changed });
  };
  const text = (id: string, label: string, value: string): HTMLElement => {
    const field = h("input", { id, value, size: 12, maxlength: 64, spellcheck: "false" });
    field.addEventListener("change", () => go({ [id]: field.value.trim() }));
    return h("span", {}, h("label", { for: id }, label), field);
  };
  const ticket = h("input", { id: "ticket", size: 34, maxlength: 64, spellcheck: "false", placeholder: "ticket id" });
  const openTicket = (event: Event): void => {
    event.preventDefault();
    if (ticket.value.trim() !== "") location.hash = address({ ticket: ticket.value.trim() });
  };
  const body = h("div", { class: "grid-of-panels" });
  view.replaceChildren(
    h("h1", {}, "Why do tickets wait?"),
    h(
      "div",
      { class: "controls" },
      setChoice(set, undefined, (chosen) => go({ set: chosen })),
      text("region", "Region", region),
      text("rule", "Rule", rule),
      h("form", { submit: openTicket }, h("label", { for: "ticket" }, "Ticket"), ticket, " ", h("button", { type: "submit" }, "Explain")),
    ),
    body,
  );
  if (set === undefined) {
    body.replaceChildren(h("p", { class: "none" }, "no set is known"));
    return;
  }
  const list: MessageInitShape<typeof ListTicketsRequestSchema> = { matchmakingSetId: set, region, blockingRule: rule, maxResults: 50 };
  const statistics = create(GetStatisticsRequestSchema, { matchmakingSetId: set });
  try {
    const [tickets, { queues }] = await Promise.all([operator.listTickets(list, { signal }), operator.getStatistics(statistics, { signal })]);
    const refusals = new Map<string, bigint>();
    for (const { rule: name, count: number } of queues.flatMap((queue) => queue.refusals)) refusals.set(name, (refusals.get(name) ?? 0n) + number);
    const rows = [...refusals].map(([name, number]) => ({ rule: name, count: number }) as RuleCount);
    body.replaceChildren(
      panel(
        "Longest waiting tickets",
        [callLink("ListTickets", ListTicketsRequestSchema, create(ListTicketsRequestSchema, list))],
        ticketTable(tickets.tickets),
        tickets.truncated && h("p", { class: "quiet" }, `more wait; ${count(tickets.readTickets)} were read, the longest waits first`),
      ),
      panel("Refused pairs of the last pass, by rule", [callLink("GetStatistics", GetStatisticsRequestSchema, statistics)], refusalBars(rows, "the last pass refused no pair")),
    );
  } catch (error) {
    if (!signal.aborted) body.replaceChildren(h("p", { role: "alert", class: "bad" }, errorText(error)));
  }
}

/** Fills `view` with the tickets of a set, or with the ticket that `parameters` names. */
export function showWhy(view: HTMLElement, signal: AbortSignal, parameters: URLSearchParams): void {
  const ticket = parameters.get("ticket");
  if (ticket !== null) {
    void showTicket(view, signal, ticket);
  } else {
    whenSetsAreKnown(signal, () => void showSet(view, signal, parameters));
  }
}
