// View "Rules": one ruleset drawn, its former versions with their differences, and the trial of an edited file.

import { create } from "@bufbuild/protobuf";
import { callLink, errorText, grpcurl, operator } from "./calls.js";
import { lineChart } from "./chart.js";
import { diffLines } from "./diff.js";
import { figure, h, panel, table } from "./dom.js";
import { count, decimal, duration, hash, shortId, time } from "./format.js";
import {
  GetRulesetRequestSchema,
  type GetRulesetResponse,
  type LimitCurve,
  RulesetState,
  type RulesetProblem,
  type RulesetStatus,
  type RulesetTrialOutcome,
  type TriedTicket,
  type TryRulesetResponse,
} from "./gen/fireteam/v1/operator_pb.js";
import { setChoice, whenSetsAreKnown } from "./sets.js";
import { live } from "./live.js";
import { confirmSwap, swapButton, type Swappable } from "./swap.js";

/** Time beyond the last step that a curve shows, as a share of the time before it. */
const TAIL = 0.25;

const alert = (error: unknown): HTMLElement => h("p", { role: "alert", class: "bad" }, errorText(error));

function curve(limit: LimitCurve): HTMLElement {
  const last = limit.steps.at(-1);
  const end = Math.max(10_000, Number(last?.fromMs ?? 0n) * (1 + TAIL));
  const points = limit.steps.map((step): [number, number] => [Number(step.fromMs), step.limit]);
  if (last !== undefined) points.push([end, last.limit]);
  const unit = limit.unit === "" ? "" : `, ${limit.unit}`;
  return h(
    "div",
    {},
    h("h3", {}, `${limit.name}${unit}${limit.growsFurther ? ", grows further" : ""}`),
    lineChart([{ name: "limit by time waited, at the end", points, isStepped: true }], { label: `Limit ${limit.name} over the time waited`, x: duration, y: decimal }),
  );
}

function weights(ruleset: GetRulesetResponse): HTMLElement {
  const total = ruleset.softFilters.reduce((sum, filter) => sum + filter.weight, 0);
  if (total === 0) return h("p", { class: "none" }, "the ruleset has no soft filters");
  return h(
    "div",
    {},
    ...ruleset.softFilters.map((filter) =>
      h(
        "div",
        { class: "bar" },
        h("span", {}, filter.name),
        h("meter", { min: 0, max: total, value: filter.weight, "aria-label": filter.name }),
        h("b", {}, `${decimal((100 * filter.weight) / total)} %`),
      ),
    ),
    h(
      "ul",
      {},
      ...ruleset.tradeoffs.map((it) => h("li", {}, `${it.amount} = ${it.equivalent}${it.isLinear ? "" : " over the whole range; the curve is not linear"}`)),
    ),
  );
}

function problemTable(problems: readonly RulesetProblem[]): HTMLElement {
  return table(
    "Problems",
    [
      { title: "File", cell: (it) => `${it.fileName}:${it.line}:${it.column}` },
      { title: "Problem", cell: (it) => h("span", { class: "wrapped" }, it.message) },
    ],
    problems,
    "none; the loaded ruleset is the file",
  );
}

function versionTable(versions: readonly RulesetStatus[], swappable: Swappable, difference: HTMLElement, signal: AbortSignal): HTMLElement {
  const { current } = swappable;
  const textOf = async ({ matchmakingSetId, serviceConfigurationHash }: RulesetStatus): Promise<GetRulesetResponse> =>
    await operator.getRuleset({ matchmakingSetId, serviceConfigurationHash }, { signal });
  const isCurrent = (version: RulesetStatus): boolean => version.serviceConfigurationHash === current.serviceConfigurationHash;
  const rollBack = async (version: RulesetStatus): Promise<void> =>
    await confirmSwap(swappable, (await textOf(version)).rulesetXml, version.serviceConfigurationHash);
  const compare = async (version: RulesetStatus): Promise<void> => {
    try {
      const former = await textOf(version);
      difference.replaceChildren(
        h("h3", {}, `From ${hash(version.serviceConfigurationHash)} to the current ${hash(current.serviceConfigurationHash)}`),
        diffLines(former.rulesetXml, current.rulesetXml),
      );
    } catch (error) {
      if (!signal.aborted) difference.replaceChildren(alert(error));
    }
  };
  return table(
    "Versions",
    [
      { title: "Hash", cell: (it) => hash(it.serviceConfigurationHash), isNumber: true },
      { title: "State", cell: (it) => (it.state === RulesetState.CURRENT ? (it.retired ? "being retired" : "current") : "replaced") },
      { title: "File", cell: (it) => (it.fileName === "" ? "–" : it.fileName) },
      { title: "Loaded", cell: (it) => time(it.loadedAtUnixMs), isNumber: true },
      { title: "By", cell: (it) => h("span", { class: "wrapped" }, it.loadedBy === "" ? "–" : it.loadedBy) },
      { title: "Matches", cell: (it) => count(it.liveMatches), isNumber: true },
      {
        title: "Differences",
        cell: (it) =>
          isCurrent(it) ? "" : h("button", { type: "button", class: "link", click: () => void compare(it), "aria-label": `Differences of ${hash(it.serviceConfigurationHash)}` }, "show"),
      },
      {
        title: "Roll back",
        cell: (it) =>
          isCurrent(it)
            ? ""
            : swapButton("roll back to this version…", swappable, () => rollBack(it), (error) => difference.replaceChildren(alert(error))),
      },
    ],
    versions,
    "no version is known",
  );
}

function outcomes(result: TryRulesetResponse): HTMLElement {
  const rows: [string, (outcome: RulesetTrialOutcome) => number | bigint][] = [
    ["Allowed pairs", (it) => it.allowedPairs],
    ["Tickets with a partner", (it) => it.ticketsWithPartner],
    ["Tickets that a pass matches now", (it) => it.matchedTickets],
  ];
  const rules = [...new Set([...(result.current?.refusals ?? []), ...(result.tried?.refusals ?? [])].map((it) => it.rule))];
  for (const rule of rules) rows.push([`Pairs refused by ${rule}`, (it) => it.refusals.find((other) => other.rule === rule)?.count ?? 0n]);
  const cell = (outcome: RulesetTrialOutcome | undefined, value: (outcome: RulesetTrialOutcome) => number | bigint): string =>
    outcome === undefined ? "–" : count(value(outcome));
  return table(
    "Trial",
    [
      { title: "", cell: ([name]) => name },
      { title: "Current", cell: ([, value]) => cell(result.current, value), isNumber: true },
      { title: "Edited", cell: ([, value]) => cell(result.tried, value), isNumber: true },
    ],
    rows,
    "",
  );
}

function ticketList(title: string, tickets: readonly TriedTicket[]): HTMLElement {
  const items = tickets.map((it) => h("li", {}, h("a", { href: `#why?ticket=${it.ticketId}`, title: it.ticketId }, shortId(it.ticketId)), ` after ${duration(it.waitedMs)}`));
  return h("div", {}, h("h3", {}, title), items.length === 0 ? h("p", { class: "none" }, "none") : h("ul", { class: "legend" }, ...items));
}

function trialResult(result: TryRulesetResponse, load: HTMLElement): HTMLElement {
  if (result.problems.length > 0) return h("div", {}, h("h3", {}, "The edited file is refused"), problemTable(result.problems));
  return h(
    "div",
    { id: "trial" },
    h(
      "dl",
      { class: "figures" },
      figure("Tickets", count(result.tickets), result.truncated ? "the longest waits" : "all of the queue"),
      figure("Pairs", count(result.pairs)),
      figure("Hash of the edited file", hash(result.serviceConfigurationHash)),
    ),
    outcomes(result),
    ticketList("Waits that would end now", result.newlyMatched),
    ticketList("Waits that would not end now", result.noLongerMatched),
    load,
  );
}

/** The command line that tries a file: the text of the file is too long for one line. */
const tryLine = (): string => `jq -n --rawfile xml FILE.xml '{rulesetXml: $xml}' | ${grpcurl("TryRuleset").replace("grpcurl", "grpcurl -d @")}`;

function trialPanel(swappable: Swappable, signal: AbortSignal): HTMLElement {
  const { current, obstacle } = swappable;
  const text = h("textarea", { id: "xml", spellcheck: "false", "aria-label": "Edited ruleset file" });
  text.value = current.rulesetXml;
  const result = h("div", { "aria-live": "polite" });
  /** Offers the text that was tried, and not what was typed afterwards. */
  const loadPart = (tried: string): HTMLElement => {
    const problem = h("div");
    const button = swapButton("Load this text…", swappable, () => confirmSwap(swappable, tried), (error) => problem.replaceChildren(alert(error)));
    return h("div", {}, h("p", {}, button), obstacle !== "" && h("p", { class: "quiet" }, `The text cannot be loaded here: ${obstacle}`), problem);
  };
  const run = async (event: Event): Promise<void> => {
    event.preventDefault();
    const tried = text.value;
    try {
      result.replaceChildren(h("p", { class: "none" }, "trying…"));
      result.replaceChildren(trialResult(await operator.tryRuleset({ rulesetXml: tried }, { signal }), loadPart(tried)));
    } catch (error) {
      if (!signal.aborted) result.replaceChildren(alert(error));
    }
  };
  return panel(
    "Try an edited file on the waiting tickets",
    [h("details", { class: "call" }, h("summary", {}, "TryRuleset"), h("code", {}, tryLine()))],
    h("form", { submit: (event: Event) => void run(event) }, text, h("p", {}, h("button", { type: "submit" }, "Try without loading"))),
    result,
  );
}

function reloadButton(result: HTMLElement, reload: () => void): HTMLButtonElement {
  const run = async (): Promise<void> => {
    if (!confirm("Read the rulesets directory again, and load what has changed there?")) return;
    try {
      const { changes, problems } = await operator.reloadRulesets({});
      result.textContent = problems.length > 0 ? `refused; problems: ${count(problems.length)}` : `loaded; changed sets: ${count(changes.length)}`;
      reload();
    } catch (error) {
      result.textContent = errorText(error);
    }
  };
  return h("button", { type: "button", click: () => void run() }, "Reload from the directory…");
}

async function showRuleset(view: HTMLElement, signal: AbortSignal, parameters: URLSearchParams): Promise<void> {
  const set = parameters.has("set") ? Number(parameters.get("set")) : live.latest?.sets.find((it) => it.name !== "")?.matchmakingSetId;
  const body = h("div");
  const result = h("p", { role: "status" });
  const reload = reloadButton(result, () => void load());
  const load = async (): Promise<void> => {
    if (set === undefined) return;
    try {
      const request = create(GetRulesetRequestSchema, { matchmakingSetId: set });
      const [current, { rulesets, swapObstacle, callerMayChange }] = await Promise.all([operator.getRuleset(request, { signal }), operator.listRulesets({}, { signal })]);
      const versions = rulesets.filter((it) => it.matchmakingSetId === set);
      const call = () => callLink("GetRuleset", GetRulesetRequestSchema, request);
      const difference = h("div", { "aria-live": "polite" });
      reload.disabled = !callerMayChange;
      const swappable = { set, current, obstacle: swapObstacle, done: (message: string) => ((result.textContent = message), void load()) };
      body.replaceChildren(
        h(
          "div",
          { class: "grid-of-panels" },
          panel("Limits over the time waited", [call()], ...(current.limits.length === 0 ? [h("p", { class: "none" }, "no limit widens")] : current.limits.map(curve))),
          panel("Weights of the soft filters", [call()], weights(current)),
        ),
        panel(
          "Versions",
          [callLink("ListRulesets")],
          versionTable(versions, swappable, difference, signal),
          swapObstacle !== "" && h("p", { class: "quiet" }, `No version can be loaded here: ${swapObstacle}`),
          difference,
        ),
        panel("Problems of the file when it was last read", [callLink("ListRulesets")], problemTable(versions.flatMap((it) => it.problems))),
        trialPanel(swappable, signal),
      );
    } catch (error) {
      if (!signal.aborted) body.replaceChildren(alert(error));
    }
  };
  view.replaceChildren(
    h("h1", {}, "Rules"),
    h("div", { class: "controls" }, setChoice(set, undefined, (chosen) => (location.hash = `#rules?set=${chosen}`)), reload, result),
    body,
  );
  await load();
}

/** Fills `view` with the ruleset of the set that `parameters` names. */
export function showRules(view: HTMLElement, signal: AbortSignal, parameters: URLSearchParams): void {
  whenSetsAreKnown(signal, () => void showRuleset(view, signal, parameters));
}
