// The chart of candidates' times: order across, time upwards on a logarithmic scale.

import { h, s } from "./dom.js";
import { behind, micros } from "./format.js";

const HEIGHT = 240;
const TOP = 16;
const BOTTOM = 10;
const LEFT = 66;
const RIGHT = 14;
const STEPS = [1, 2, 5];

/** @param {import("./run_model.js").RunModel} model @param {number} width pixels */
export function chart(model, width) {
  const all = model.candidates;
  const timed = all.flatMap((c) => (c.time_us === null ? [] : [c.time_us]));
  const bar = model.baseline_us && model.min_speedup ? model.baseline_us / model.min_speedup : null;
  const shown = [...timed, model.baseline_us, bar].filter((us) => us);
  const [low, high] = shown.length ? [Math.min(...shown) / 1.25, Math.max(...shown) * 1.25] : [1, 10];
  const span = Math.log(high / low);
  const y = (us) => TOP + (HEIGHT - TOP - BOTTOM) * (Math.log(high / us) / span);
  const x = (place) => LEFT + ((place + 0.5) * (width - LEFT - RIGHT)) / Math.max(all.length, 8);
  const described = `Time of ${all.length} candidates in order${behind(model.provenance)}`;
  return s("svg", { class: "chart", role: "img", width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`,
    "aria-labelledby": "chart-title chart-desc" },
    s("title", { id: "chart-title" }, described),
    s("desc", { id: "chart-desc" }, summary(model, timed)),
    ticks(low, high).map((us) => [
      s("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(us), y2: y(us) }),
      s("text", { class: "tick", x: LEFT - 6, y: y(us) + 4, "text-anchor": "end" }, short(us)),
    ]).flat(),
    model.baseline_us ? level("author", model.baseline_us, "author’s kernel", y, width) : null,
    bar ? level("bar", bar, `bar: ${model.min_speedup}× faster`, y, width) : null,
    all.map((one, place) => point(one, x(place), one.time_us === null ? HEIGHT - BOTTOM : y(one.time_us))),
    s("line", { class: "axis", x1: LEFT, x2: width - RIGHT, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM }));
}

/** What the chart shows, in words. */
function summary(model, timed) {
  if (timed.length === 0) return "No candidate has a time yet.";
  const [best, worst] = [Math.min(...timed), Math.max(...timed)];
  const author = model.baseline_us ? ` The author’s kernel: ${micros(model.baseline_us)}.` : "";
  return `Fastest ${micros(best)}, slowest ${micros(worst)}, ${timed.length} with a time.${author} The table below has all.`;
}

/** Round values between the ends, few enough to be read. */
function ticks(low, high) {
  const found = [];
  for (let decade = Math.floor(Math.log10(low)); decade <= Math.ceil(Math.log10(high)); decade += 1) {
    for (const step of STEPS) {
      const us = step * 10 ** decade;
      if (us > low && us < high) found.push(us);
    }
  }
  return found.length > 7 ? found.filter((us) => Number.isInteger(Math.log10(us))) : found;
}

const short = (us) => (us >= 1000 ? `${us / 1000} ms` : `${Number(us.toPrecision(3))} µs`);

/** A line across at one time, with its name. */
function level(name, us, words, y, width) {
  const above = name === "author";
  return s("g", { class: `level ${name}` },
    s("line", { x1: LEFT, x2: width - RIGHT, y1: y(us), y2: y(us) }),
    s("text", { x: width - RIGHT, y: y(us) + (above ? -5 : 14), "text-anchor": "end" }, words));
}

/** Shape and class by outcome, so that colour is not all that tells them apart. */
function point(one, x, y) {
  const name = `point ${one.outcome.replace(" ", "-")}`;
  if (one.outcome === "accepted" || one.outcome === "provisional") {
    return s("path", { class: name, d: `M${x} ${y - 7}l7 7l-7 7l-7 -7z` });
  }
  if (one.outcome === "rejected" || one.time_us === null) {
    return s("path", { class: name, d: `M${x - 5} ${y - 5}l10 10m0 -10l-10 10` });
  }
  return s("circle", { class: name, cx: x, cy: y, r: 4 });
}

/** What the shapes mean. @param {string} provenance */
export function legend(provenance) {
  const key = (outcome, words) =>
    h("span", {}, s("svg", { width: 16, height: 16, "aria-hidden": "true" }, point({ outcome, time_us: 1 }, 8, 8)), words);
  return h("p", { class: "legend" }, key("timed", "timed"), key("provisional", "passed every gate"),
    key("rejected", "rejected, or no time"), provenance ? h("span", {}, `times ${provenance}`) : null);
}
