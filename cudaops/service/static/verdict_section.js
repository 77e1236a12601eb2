// What limits the kernel, as soon as the profiler has it; the latest verdict stands first.

import { fill, h, table } from "./dom.js";
import { behind, micros, number } from "./format.js";

export function verdictSection() {
  const place = h("div");
  const element = h("section", { class: "card", "aria-labelledby": "verdict-title", hidden: true },
    h("h2", { id: "verdict-title" }, "What limits it"), place);
  let drawn = 0;
  return {
    element,
    /** @param {import("./run_model.js").RunModel} model */
    update(model) {
      element.hidden = model.verdicts.length === 0;
      if (drawn === model.verdicts.length) return;
      drawn = model.verdicts.length;
      const [first, ...later] = model.verdicts;
      const latest = later.at(-1);
      fill(place, latest ? [h("h3", {}, "The best rewrite so far"), verdict(latest, "Evidence, best rewrite so far"),
        h("h3", {}, "The author’s kernel")] : null, verdict(first, "Evidence, the author’s kernel"));
    },
    destroy() {},
  };
}

/** @param {object} told @param {string} caption */
function verdict(told, caption) {
  const rows = told.evidence.map((one) =>
    h("tr", {},
      h("th", { scope: "row" }, one.label),
      h("td", { class: "num" }, `${number(one.value)} ${one.unit}`),
      h("td", { class: "num" }, `${one.comparison} ${number(one.threshold)} ${one.unit}`)));
  const heads = ["Metric", { num: `Value${behind(told.provenance)}` }, { num: "Threshold" }];
  return h("div", { class: "verdict" },
    h("p", { class: "lead" }, told.summary),
    h("p", {}, h("span", { class: "tag" }, told.subtype.replaceAll("_", " ")), " ",
      `one launch takes ${micros(told.time_us)}${behind(told.provenance)}`),
    rows.length ? table(caption, heads, rows, { class: "short" }).box : null,
    h("p", {}, h("strong", {}, "What would relieve it: "), told.relief));
}
