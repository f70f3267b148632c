// Choice of a set, from the sets that the stream lists.

import { h } from "./dom.js";
import { live } from "./live.js";

/** A list of sets to choose from. `chosen` undefined: all sets, if `all` is given as its title. */
export function setChoice(chosen: number | undefined, all: string | undefined, choose: (set: number | undefined) => void): HTMLElement {
  const select = h("select", { id: "set" });
  const fill = (): void => {
    const options = (live.latest?.sets ?? []).map((set) => {
      const text = set.name === "" ? `set ${set.matchmakingSetId}` : `${set.name} (${set.matchmakingSetId})`;
      return h("option", { value: set.matchmakingSetId, selected: set.matchmakingSetId === chosen }, text);
    });
    if (all !== undefined) options.unshift(h("option", { value: "", selected: chosen === undefined }, all));
    select.replaceChildren(...options);
  };
  fill();
  select.addEventListener("change", () => choose(select.value === "" ? undefined : Number(select.value)));
  return h("span", {}, h("label", { for: "set" }, "Set"), select);
}

/** Calls `begin` as soon as the stream has listed the sets. */
export function whenSetsAreKnown(signal: AbortSignal, begin: () => void): void {
  if (live.latest !== undefined) {
    begin();
    return;
  }
  const listener = (): void => {
    if (live.latest === undefined) return;
    live.listeners.delete(listener);
    begin();
  };
  live.listeners.add(listener);
  signal.addEventListener("abort", () => live.listeners.delete(listener));
}

/** The set with the most waiting tickets. */
export function busiestSet(): number | undefined {
  const sets = [...(live.latest?.sets ?? [])];
  sets.sort((one, other) => Number(other.waitingTickets - one.waitingTickets));
  return sets[0]?.matchmakingSetId;
}
