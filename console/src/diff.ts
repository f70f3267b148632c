// Difference of two texts by lines.

import { h } from "./dom.js";

/** Lines of unchanged text around a change. */
const CONTEXT = 2;

/** Largest number of comparisons; longer texts are shown as one removal and one addition. */
const COMPARISONS_MAX = 4_000_000;

/** Lines with ` `, `-` or `+`, from a longest common subsequence. */
function edits(before: readonly string[], after: readonly string[]): [" " | "-" | "+", string][] {
  if (before.length * after.length > COMPARISONS_MAX) {
    return [...before.map((line): ["-", string] => ["-", line]), ...after.map((line): ["+", string] => ["+", line])];
  }
  const width = after.length + 1;
  const common = new Uint32Array((before.length + 1) * width);
  const at = (one: number, other: number): number => common[one * width + other] ?? 0;
  for (let one = before.length - 1; one >= 0; one -= 1) {
    for (let other = after.length - 1; other >= 0; other -= 1) {
      common[one * width + other] = before[one] === after[other] ? at(one + 1, other + 1) + 1 : Math.max(at(one + 1, other), at(one, other + 1));
    }
  }
  const result: [" " | "-" | "+", string][] = [];
  let [one, other] = [0, 0];
  while (one < before.length || other < after.length) {
    if (one < before.length && other < after.length && before[one] === after[other]) {
      result.push([" ", before[one] ?? ""]);
      [one, other] = [one + 1, other + 1];
    } else if (other < after.length && (one === before.length || at(one, other + 1) > at(one + 1, other))) {
      result.push(["+", after[other] ?? ""]);
      other += 1;
    } else {
      result.push(["-", before[one] ?? ""]);
      one += 1;
    }
  }
  return result;
}

/** The changed lines with a little of the text around them. */
export function diffLines(before: string, after: string): HTMLElement {
  const all = edits(before.split("\n"), after.split("\n"));
  const isShown = all.map((_, index) => all.slice(Math.max(0, index - CONTEXT), index + CONTEXT + 1).some(([kind]) => kind !== " "));
  const lines: Node[] = [];
  all.forEach(([kind, line], index) => {
    if (isShown[index] !== true) {
      if (isShown[index - 1] === true) lines.push(h("span", {}, "…"), document.createTextNode("\n"));
      return;
    }
    lines.push(h(kind === "+" ? "ins" : kind === "-" ? "del" : "span", {}, `${kind} ${line}`), document.createTextNode("\n"));
  });
  return lines.length === 0 ? h("p", { class: "none" }, "the texts are equal") : h("pre", { class: "diff" }, ...lines);
}
