// Candidates' times as they come: a chart, and the same numbers in a table.

import { chart, legend } from "./candidates_chart.js";
import { fill, h, setText, table } from "./dom.js";
import { behind, micros, settings, times } from "./format.js";

export function candidatesSection() {
  const lead = h("p", { class: "lead" });
  const figure = h("div", { class: "figure" });
  const place = h("div");
  const element = h("section", { class: "card", "aria-labelledby": "candidates-title", hidden: true },
    h("h2", { id: "candidates-title" }, "Candidates"), lead, figure, place);
  /** @type {ReturnType<typeof table> | null} */
  let rows = null;
  let drawn = 0;
  let drawnFor = "";
  let words = "";
  let corrected = 0;
  let baseline = null;
  let model = null;

  const redraw = () => {
    if (model?.candidates.length && figure.clientWidth) {
      fill(figure, chart(model, figure.clientWidth), legend(model.provenance));
    }
  };
  const resized = new ResizeObserver(redraw);
  resized.observe(figure);

  return {
    element,
    /** @param {import("./run_model.js").RunModel} now */
    update(now) {
      model = now;
      const all = now.candidates;
      element.hidden = all.length === 0;
      const told = [all.length, now.corrected, now.baseline_us, now.min_speedup, now.provenance].join();
      if (told === drawnFor) return;
      drawnFor = told;
      const stale = now.corrected !== corrected || now.baseline_us !== baseline || now.provenance !== words;
      if (rows === null || all.length < drawn || stale) {
        [corrected, baseline] = [now.corrected, now.baseline_us];
        words = now.provenance;
        const numbers = [{ num: "#" }, { num: `Time${behind(words)}` }, { num: `Speedup${behind(words)}` }];
        const heads = [...numbers, "Outcome", "Candidate"];
        rows = table("Candidates in the order in which they came", heads, [], { class: "candidates" });
        fill(place, rows.box);
        drawn = 0;
      }
      for (; drawn < all.length; drawn += 1) rows.body.append(rowOf(all[drawn], drawn + 1, now));
      setText(lead, sentence(now));
      redraw();
    },
    destroy: () => resized.disconnect(),
  };
}

/** Where it stands, in one sentence. @param {import("./run_model.js").RunModel} model */
function sentence(model) {
  const { candidates, baseline_us, provenance } = model;
  const timed = candidates.filter((c) => c.time_us !== null);
  const author = baseline_us ? ` against the author’s ${micros(baseline_us)}` : "";
  if (timed.length === 0) return "No candidate has a time yet.";
  const kept = candidates.findLast((c) => c.outcome === "accepted" || c.outcome === "provisional");
  if (kept) {
    const speedup = kept.speedup === null ? "" : `, ${times(kept.speedup)}`;
    return `Best that passed every gate: ${micros(kept.time_us)}${author}${speedup}${behind(provenance)}.`;
  }
  const best = timed.reduce((a, b) => (b.time_us < a.time_us ? b : a));
  const stands = best.outcome === "rejected" ? "rejected" : "not judged yet";
  return `Fastest so far, ${stands}: ${micros(best.time_us)}${author}${behind(provenance)}.`;
}

/** @param {import("./run_model.js").Candidate} one */
function rowOf(one, place, model) {
  const against = one.speedup ?? (one.time_us && model.baseline_us ? model.baseline_us / one.time_us : null);
  const interval = one.low !== null && one.high !== null ? ` (${times(one.low)} to ${times(one.high)})` : "";
  const values = settings(one.values);
  return h("tr", { class: one.outcome.replace(" ", "-") },
    h("td", { class: "num place" }, place),
    h("td", { class: "num" }, micros(one.time_us)),
    h("td", { class: "num" }, times(against) + interval),
    h("td", {}, h("span", { class: `mark ${one.outcome.replace(" ", "-")}` }, one.outcome),
      one.reason ? h("span", { class: "values" }, one.reason) : null),
    h("th", { scope: "row" }, one.title, values ? h("span", { class: "values" }, values) : null));
}
