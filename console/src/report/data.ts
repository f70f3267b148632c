// Charts of a simulation, as `fireteam simulate --plot` writes them into its page (src/cli/simulate/charts.rs).

/** Percentile of a distribution, to be marked on its curve. */
export interface Mark {
  name: string;
  x: number;
  y: number;
}

/** Line through points from left to right. */
export interface Line {
  name: string;
  points: [number, number][];
  marks: Mark[];
}

/** Percentiles of the groups of one ruleset; null for a group without values. */
export interface Percentiles {
  name: string;
  p50: (number | null)[];
  p90: (number | null)[];
}

/** Difference of a statistic, percent of its value under the first ruleset. */
export interface Interval {
  name: string;
  percent: number;
  low: number;
  high: number;
  text: string;
  verdict: string;
  is_more_than_chance: boolean;
}

export type Chart =
  | { kind: "lines"; title: string; x: string; y: string; lines: Line[] }
  | { kind: "groups"; title: string; unit: string; groups: string[]; series: Percentiles[] }
  | { kind: "intervals"; title: string; unit: string; rows: Interval[] };
