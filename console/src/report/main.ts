// Script of the page that `fireteam simulate --plot` writes: draws the charts of the page's data with uPlot. It makes no request.

import uPlot from "uplot";
import type { Chart, Interval } from "./data.js";

type GroupsChart = Extract<Chart, { kind: "groups" }>;
type IntervalsChart = Extract<Chart, { kind: "intervals" }>;
type LinesChart = Extract<Chart, { kind: "lines" }>;

const HEIGHT = 300;
const HEIGHT_OF_ROW = 30;

/** Distance of the series of one group from each other; groups are one apart. */
const SERIES_GAP = 0.16;

const MARK_RADIUS = 4;

function color(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function seriesColor(index: number): string {
  return color(`--c${index % 6}`);
}

function number(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  const digits = Math.abs(value) < 10 ? 2 : Math.abs(value) < 100 ? 1 : 0;
  return value.toLocaleString("en", { maximumFractionDigits: digits });
}

function axis(label: string): uPlot.Axis {
  const line = { stroke: color("--edge"), width: 1 };
  return { label, stroke: color("--text"), grid: line, ticks: line, labelFont: "13px system-ui, sans-serif", font: "12px system-ui, sans-serif" };
}

/** Index of the nearest value of a series: lines have their points at different places. */
function nearestIndex(plot: uPlot, series: number, hovered: number): number {
  const values = plot.data[series];
  if (series === 0 || values === undefined || (values[hovered] ?? null) !== null) return hovered;
  for (let away = 1; away < values.length; away += 1) {
    for (const index of [hovered - away, hovered + away]) {
      if ((values[index] ?? null) !== null) return index;
    }
  }
  return hovered;
}

/** Points of several series over one x axis. */
function joined(tables: (readonly [number, number | null])[][]): uPlot.AlignedData {
  return uPlot.join(tables.map((points) => [points.map(([x]) => x), points.map(([, y]) => y)]));
}

function drawDot(plot: uPlot, x: number, y: number, stroke: string, filled: boolean): void {
  const { ctx } = plot;
  ctx.beginPath();
  ctx.arc(plot.valToPos(x, "x", true), plot.valToPos(y, "y", true), MARK_RADIUS * devicePixelRatio, 0, 2 * Math.PI);
  ctx.strokeStyle = stroke;
  ctx.fillStyle = filled ? stroke : color("--panel");
  ctx.lineWidth = 2 * devicePixelRatio;
  ctx.fill();
  ctx.stroke();
}

function base(chart: Chart, width: number, height: number): Omit<uPlot.Options, "series"> {
  return {
    title: chart.title,
    width,
    height,
    cursor: { dataIdx: nearestIndex, drag: { x: true, y: false } },
    legend: { live: true },
  };
}

/** Lines: distributions with their percentiles marked, and counts over time. */
function lines(chart: LinesChart, width: number, parent: HTMLElement): uPlot {
  const { lines } = chart;
  const drawMarks = (plot: uPlot): void => {
    plot.ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
    lines.forEach((line, index) => {
      for (const mark of line.marks) drawDot(plot, mark.x, mark.y, seriesColor(index), true);
    });
    for (const mark of lines[0]?.marks ?? []) {
      const y = plot.valToPos(mark.y, "y", true);
      plot.ctx.fillStyle = color("--quiet");
      plot.ctx.textAlign = "left";
      plot.ctx.fillText(mark.name, plot.bbox.left + 4, y - 4);
    }
  };
  const series: uPlot.Series[] = lines.map((line, index) => ({
    label: [line.name, ...line.marks.map((mark) => `${mark.name} ${number(mark.x)}`)].join(", "),
    stroke: seriesColor(index),
    width: 2,
    spanGaps: true,
    points: { show: line.points.length <= 12 },
    value: (_: uPlot, value: number | null) => number(value),
  }));
  const options = {
    ...base(chart, width, HEIGHT),
    scales: { x: { time: false } },
    axes: [axis(chart.x), axis(chart.y)],
    series: [{ label: chart.x, value: (_: uPlot, value: number | null) => number(value) }, ...series],
    hooks: { draw: [drawMarks] },
  };
  return new uPlot(options, joined(lines.map((line) => line.points)), parent);
}

/** Groups: the median of each as a dot, a line to the 90th percentile, and that as a ring. */
function groups(chart: GroupsChart, width: number, parent: HTMLElement): uPlot {
  const { series } = chart;
  const place = (group: number, index: number): number => group + (index - (series.length - 1) / 2) * SERIES_GAP;
  const tables = series.flatMap((one, index) => [one.p50, one.p90].map((values) => values.map((value, group) => [place(group, index), value] as const)));
  const draw = (plot: uPlot): void => {
    series.forEach((one, index) => {
      one.p50.forEach((median, group) => {
        const high = one.p90[group] ?? null;
        if (median === null || high === null) return;
        const x = place(group, index);
        const { ctx } = plot;
        ctx.beginPath();
        ctx.moveTo(plot.valToPos(x, "x", true), plot.valToPos(median, "y", true));
        ctx.lineTo(plot.valToPos(x, "x", true), plot.valToPos(high, "y", true));
        ctx.strokeStyle = seriesColor(index);
        ctx.lineWidth = 2 * devicePixelRatio;
        ctx.stroke();
        drawDot(plot, x, median, seriesColor(index), true);
        drawDot(plot, x, high, seriesColor(index), false);
      });
    });
  };
  const rows: uPlot.Series[] = series.flatMap((one, index) =>
    ["p50", "p90"].map((percentile) => ({
      label: `${one.name}, ${percentile}`,
      stroke: seriesColor(index),
      paths: () => null,
      points: { show: false },
      value: (_: uPlot, value: number | null) => number(value),
    })),
  );
  // Many names are longer than their places.
  const turned = chart.groups.length > 4 ? { rotate: -40, size: 70 } : {};
  const name = (x: number | null): string => (x === null ? "–" : (chart.groups[Math.round(x)] ?? ""));
  const options = {
    ...base(chart, width, HEIGHT),
    scales: { x: { time: false, range: [-0.6, chart.groups.length - 0.4] as uPlot.Range.MinMax }, y: { range: { min: { hard: 0, soft: 0, mode: 1 as const, pad: 0 }, max: { pad: 0.1 } } } },
    axes: [
      { ...axis(""), ...turned, splits: () => chart.groups.map((_, index) => index), values: (_: uPlot, splits: number[]) => splits.map(name) },
      axis(chart.unit),
    ],
    series: [{ label: "group", value: (_: uPlot, value: number | null) => name(value) }, ...rows],
    hooks: { draw: [draw] },
  };
  return new uPlot(options, joined(tables), parent);
}

/** Intervals: one row for each statistic, its difference with the interval, and a line at no difference. */
function intervals(chart: IntervalsChart, width: number, parent: HTMLElement): uPlot {
  const { rows } = chart;
  const row = (index: number | null): Interval | undefined => (index === null ? undefined : rows[Math.round(index)]);
  const draw = (plot: uPlot): void => {
    const { ctx, bbox } = plot;
    const zero = plot.valToPos(0, "y", true);
    ctx.beginPath();
    ctx.moveTo(zero, bbox.top);
    ctx.lineTo(zero, bbox.top + bbox.height);
    ctx.strokeStyle = color("--quiet");
    ctx.lineWidth = devicePixelRatio;
    ctx.stroke();
    rows.forEach((one, index) => {
      const y = plot.valToPos(index, "x", true);
      const stroke = one.is_more_than_chance ? color("--c0") : color("--quiet");
      const [low, high] = [plot.valToPos(one.low, "y", true), plot.valToPos(one.high, "y", true)];
      const cap = 5 * devicePixelRatio;
      ctx.beginPath();
      ctx.moveTo(low, y);
      ctx.lineTo(high, y);
      for (const end of [low, high]) {
        ctx.moveTo(end, y - cap);
        ctx.lineTo(end, y + cap);
      }
      ctx.strokeStyle = stroke;
      ctx.lineWidth = 2 * devicePixelRatio;
      ctx.stroke();
      ctx.beginPath();
      ctx.arc(plot.valToPos(one.percent, "y", true), y, MARK_RADIUS * devicePixelRatio, 0, 2 * Math.PI);
      ctx.fillStyle = one.is_more_than_chance ? stroke : color("--panel");
      ctx.fill();
      ctx.stroke();
    });
  };
  const ends = rows.flatMap((one) => [one.low, one.high, 0]);
  const margin = Math.max(1, (Math.max(...ends) - Math.min(...ends)) * 0.05);
  const range: uPlot.Range.MinMax = [Math.min(...ends) - margin, Math.max(...ends) + margin];
  const options = {
    ...base(chart, width, 110 + rows.length * HEIGHT_OF_ROW),
    scales: {
      x: { time: false, ori: 1 as const, dir: -1 as const, range: [-0.7, rows.length - 0.3] as uPlot.Range.MinMax },
      y: { ori: 0 as const, range },
    },
    axes: [
      { ...axis(""), side: 3 as const, size: 220, splits: () => rows.map((_, index) => index), values: (_: uPlot, splits: number[]) => splits.map((index) => row(index)?.name ?? "") },
      { ...axis(chart.unit), side: 2 as const },
    ],
    series: [
      { label: "statistic", value: (_: uPlot, value: number | null) => row(value)?.name ?? "–" },
      {
        label: "difference",
        stroke: color("--c0"),
        paths: () => null,
        points: { show: false },
        value: (_: uPlot, value: number | null, __: number, index: number | null) => (value === null ? "–" : `${row(index)?.text}: ${row(index)?.verdict}`),
      },
    ],
    hooks: { draw: [draw] },
  };
  return new uPlot(options, [rows.map((_, index) => index), rows.map((one) => one.percent)], parent);
}

function plotOf(chart: Chart, width: number, parent: HTMLElement): uPlot {
  switch (chart.kind) {
    case "lines":
      return lines(chart, width, parent);
    case "groups":
      return groups(chart, width, parent);
    case "intervals":
      return intervals(chart, width, parent);
  }
}

const charts = JSON.parse(document.getElementById("charts")?.textContent ?? "[]") as Chart[];
const section = document.getElementById("plots") as HTMLElement;
let drawn: uPlot[] = [];

function draw(): void {
  for (const plot of drawn) plot.destroy();
  section.replaceChildren();
  const figures = charts.map((chart) => {
    const figure = document.createElement("figure");
    if (chart.kind === "intervals") figure.className = "wide";
    return figure;
  });
  // The width of a figure depends on the others.
  section.append(...figures);
  const widths = figures.map((figure) => {
    const { paddingLeft, paddingRight } = getComputedStyle(figure);
    return figure.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
  });
  drawn = charts.map((chart, index) => plotOf(chart, widths[index] as number, figures[index] as HTMLElement));
}

draw();
// Canvases keep the colors and the width with which they were drawn.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
matchMedia("print").addEventListener("change", draw);
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === width) return;
  width = innerWidth;
  draw();
});
