// Values as people read them.

/** @param {number | null | undefined} us microseconds */
export function micros(us) {
  if (us === null || us === undefined) return "no time";
  if (us >= 100_000) return `${(us / 1000).toFixed(1)} ms`;
  return us >= 10 ? `${us.toFixed(1)} µs` : `${us.toPrecision(3)} µs`;
}

/** @param {number | null | undefined} seconds */
export function seconds(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** @param {number | null | undefined} speedup */
export const times = (speedup) => (typeof speedup === "number" ? `${speedup.toFixed(2)}×` : "–");

/** @param {number} bytes */
export function bytes(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  if (bytes < 1024 * 1024) return `${(bytes / 1024).toFixed(1)} KiB`;
  return `${(bytes / 1024 / 1024).toFixed(1)} MiB`;
}

/** @param {string} iso @param {number} [now] milliseconds */
export function age(iso, now = Date.now()) {
  const past = Math.max(0, (now - Date.parse(iso)) / 1000);
  if (past < 60) return `${Math.floor(past)} s ago`;
  if (past < 3600) return `${Math.floor(past / 60)} min ago`;
  if (past < 86_400) return `${Math.floor(past / 3600)} h ago`;
  return `${Math.floor(past / 86_400)} d ago`;
}

/** @param {string} iso */
export const clock = (iso) => (iso ? `${iso.slice(0, 10)} ${iso.slice(11, 19)} UTC` : "");

/** Words in brackets behind a number that was not measured (` (modelled for A10)`), else nothing. */
export const behind = (provenance) => (provenance ? ` (${provenance})` : "");

/** `BM=64, BN=32` of tune values. @param {Record<string, number>} values */
export const settings = (values) =>
  Object.entries(values ?? {})
    .map(([name, value]) => `${name}=${value}`)
    .join(", ");

/** A metric's value: at most three digits that count. @param {number} value */
export function number(value) {
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e6 || size < 1e-2)) return value.toExponential(2);
  return size >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(3)));
}

export const ENDED = new Set(["succeeded", "failed", "cancelled"]);

const OUTCOMES = {
  accepted: "accepted: every gate passed, measured faster",
  provisional: "provisional: every gate passed, the time is not of a GPU",
  nothing_found: "nothing beat the bar",
  failed: "failed",
};

/** @param {string | null} outcome of a run record */
export const outcomeText = (outcome) => (outcome ? (OUTCOMES[outcome] ?? outcome) : "");
