// Line charts as SVG, with a table of their last values for readers of the screen.

import { h, svg } from "./dom.js";

/** One line of a chart. */
export interface Line {
  readonly name: string;
  /** Points in the order of x. A missing y is a gap. */
  readonly points: readonly (readonly [x: number, y: number | undefined])[];
  /** The line goes up in steps. */
  readonly isStepped?: boolean;
}

export interface ChartOptions {
  readonly label: string;
  readonly x: (value: number) => string;
  readonly y: (value: number) => string;
  /** Least value at the top; 2 for counts, so that the middle is a whole number. */
  readonly least?: number;
}

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [560, 190, 70, 10, 14, 26];

/** The least of 1, 2 and 5 times a power of ten that is at least `value`. */
function niceAbove(value: number): number {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => value <= step * 1.000001) ?? 10 * power;
}

/** A chart of lines over the same x. */
export function lineChart(lines: readonly Line[], { label, x, y, least = 0 }: ChartOptions): HTMLElement {
  const xs = lines.flatMap((line) => line.points.map(([at]) => at));
  const ys = lines.flatMap((line) => line.points.flatMap(([, value]) => (value === undefined ? [] : [value])));
  if (ys.length === 0) return h("p", { class: "none" }, "no values yet");
  const [from, to, top] = [Math.min(...xs), Math.max(...xs), niceAbove(Math.max(least, ...ys))];
  const atX = (value: number): number => LEFT + ((value - from) / (to - from || 1)) * (WIDTH - LEFT - RIGHT);
  const atY = (value: number): number => HEIGHT - BOTTOM - (value / top) * (HEIGHT - TOP - BOTTOM);
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label, class: "chart" });
  for (const share of [0, 0.5, 1]) {
    const height = atY(top * share);
    drawing.append(
      svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: height, y2: height, class: "grid" }),
      svg("text", { x: LEFT - 6, y: height + 4, class: "axis end" }, y(top * share)),
    );
  }
  for (const [share, anchor] of [[0, "start"], [0.5, "middle"], [1, "end"]] as const) {
    const value = from + (to - from) * share;
    drawing.append(svg("text", { x: atX(value), y: HEIGHT - 6, class: `axis ${anchor}` }, x(value)));
  }
  lines.forEach((line, index) => {
    let path = "";
    let before: number | undefined;
    for (const [at, value] of line.points) {
      if (value === undefined) {
        before = undefined;
        continue;
      }
      const [right, height] = [atX(at).toFixed(1), atY(value).toFixed(1)];
      if (before !== undefined && line.isStepped === true) path += `H${right}`;
      path += `${before === undefined ? "M" : "L"}${right} ${height}`;
      before = value;
    }
    drawing.append(svg("path", { d: path, class: `line line-${index % 6}` }));
  });
  const last = (line: Line): string => {
    const value = line.points.at(-1)?.[1];
    return value === undefined ? "–" : y(value);
  };
  const legend = lines.map((line, index) =>
    h("li", {}, h("span", { class: `key line-${index % 6}`, "aria-hidden": "true" }), line.name, " ", h("b", {}, last(line))),
  );
  return h("div", { class: "chart-with-legend" }, drawing, h("ul", { class: "legend" }, ...legend));
}
