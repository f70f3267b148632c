// Numbers, durations and times as text.

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const FRACTION = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });

/** A whole number, with separators of thousands. */
export const count = (value: number | bigint): string => WHOLE.format(value);

/** A number with at most two decimals. */
export const decimal = (value: number): string => FRACTION.format(value);

/** A duration in its largest two units: `1 m 05 s`. */
export function duration(ms: number | bigint | undefined): string {
  if (ms === undefined) return "–";
  const value = Number(ms);
  if (value < 1_000) return `${Math.round(value)} ms`;
  if (value < 60_000) return `${(value / 1_000).toFixed(1)} s`;
  const seconds = Math.floor(value / 1_000);
  const two = (part: number): string => String(part).padStart(2, "0");
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} m ${two(seconds % 60)} s`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3_600)} h ${two(Math.floor(seconds / 60) % 60)} m`;
  return `${Math.floor(seconds / 86_400)} d ${two(Math.floor(seconds / 3_600) % 24)} h`;
}

/** A time of the day, local, with the date if it is another day. */
export function time(unixMs: number | bigint | undefined): string {
  if (unixMs === undefined || Number(unixMs) === 0) return "–";
  const at = new Date(Number(unixMs));
  const clock = at.toLocaleTimeString("en-GB");
  return at.toDateString() === new Date().toDateString() ? clock : `${at.toISOString().slice(0, 10)} ${clock}`;
}

/** Name of an enum's value in words: `NOT_ACCEPTED_IN_TIME` is `not accepted in time`. */
export const words = (name: string | undefined): string => (name ?? "unknown").toLowerCase().replaceAll("_", " ");

/** Hash of a ruleset, as the log has it. */
export const hash = (value: number | undefined): string => (value === undefined ? "–" : String(value));

/** The first eight digits of an id; the whole id is in the link behind it. */
export const shortId = (id: string): string => id.slice(0, 8);
