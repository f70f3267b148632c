// Swap of a set's ruleset by an edited text or a former version. The dialog shows what changes, and asks for a reason.

import { confirmWithReason } from "./actions.js";
import { grpcurl, operator, quoted } from "./calls.js";
import { diffLines } from "./diff.js";
import { h } from "./dom.js";
import { count, hash } from "./format.js";
import { type GetRulesetResponse, type RulesetProblem, SwapRulesetRequestSchema } from "./gen/fireteam/v1/operator_pb.js";

/** Ruleset that is replaced, and whether it can be. */
export interface Swappable {
  readonly set: number;
  readonly current: GetRulesetResponse;
  /** Why the server would refuse; empty if no reason is known. */
  readonly obstacle: string;
  /** Shows the result and the new state. */
  readonly done: (message: string) => void;
}

/** The command line that loads a file: its text is too long for one line. */
function swapLine({ set, current }: Swappable, reason: string): string {
  const request = `{matchmakingSetId: ${set}, expectedHash: ${current.serviceConfigurationHash}, rulesetXml: $xml, reason: ${JSON.stringify(reason)}}`;
  return `jq -n --rawfile xml FILE.xml ${quoted(request)} | ${grpcurl("SwapRuleset").replace("grpcurl", "grpcurl -d @")}`;
}

const problemText = (problems: readonly RulesetProblem[]): string =>
  `refused, nothing has changed: ${problems.map((it) => `${it.fileName}:${it.line}:${it.column}: ${it.message}`).join("; ")}`;

/** Asks, then replaces the ruleset by `text`; if `former` is given, by that version, whose text it is. */
export async function confirmSwap(swappable: Swappable, text: string, former?: number): Promise<void> {
  const { set, current, done } = swappable;
  const { problems, ratingChange } = await operator.checkRuleset({ rulesetXml: text });
  if (problems.length > 0) throw new Error(problemText(problems));
  const replacement = former === undefined ? { case: "rulesetXml" as const, value: text } : { case: "formerHash" as const, value: former };
  const request = { matchmakingSetId: set, expectedHash: current.serviceConfigurationHash };
  confirmWithReason(
    former === undefined ? "Load this text?" : `Roll back to ${hash(former)}?`,
    "The server replaces the set's file in its rulesets directory and loads it. Waiting tickets are judged by the new rules from the next pass on; matches keep theirs.",
    former === undefined ? "Load" : "Roll back",
    SwapRulesetRequestSchema,
    "SwapRuleset",
    { ...request, replacement },
    async (reason) => {
      const response = await operator.swapRuleset({ ...request, replacement, reason });
      if (response.problems.length > 0) throw new Error(problemText(response.problems));
      done(`${response.fileName} is written and loaded; changed sets: ${count(response.changes.length)}`);
    },
    {
      details: [
        ratingChange === "" ? undefined : h("p", { class: "bad" }, `Ratings: ${ratingChange}`),
        h("h3", {}, "Differences to the ruleset in force"),
        h("div", { class: "scroll tall", tabindex: 0, role: "region", "aria-label": "Differences to the ruleset in force" }, diffLines(current.rulesetXml, text)),
      ],
      line: former === undefined ? (reason) => swapLine(swappable, reason) : undefined,
    },
  );
}

/** Button that replaces the ruleset. It is disabled, and says why, if the server would refuse. */
export function swapButton(label: string, swappable: Swappable, start: () => Promise<void>, onError: (error: unknown) => void): HTMLElement {
  const isDisabled = swappable.obstacle !== "";
  return h(
    "button",
    { type: "button", disabled: isDisabled, title: isDisabled ? swappable.obstacle : undefined, click: () => void start().catch(onError) },
    label,
  );
}
