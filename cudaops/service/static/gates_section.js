// Gates of each candidate as they pass or fail.

import { fill, h, setText } from "./dom.js";
import { seconds } from "./format.js";

export function gatesSection() {
  const place = h("div", { class: "gates" });
  const element = h("section", { class: "card", "aria-labelledby": "gates-title", hidden: true },
    h("h2", { id: "gates-title" }, "Gates as they came"),
    h("p", { class: "note" }, "In the order of their cost; the first that fails ends it."), place);
  /** @type {Map<number, ReturnType<typeof group>>} */
  const groups = new Map();
  return {
    element,
    /** @param {import("./run_model.js").RunModel} model */
    update(model) {
      element.hidden = model.gates.size === 0;
      for (const number of groups.keys()) {
        if (model.gates.has(number)) continue;
        groups.get(number).element.remove();
        groups.delete(number);
      }
      for (const [number, held] of model.gates) {
        if (!groups.has(number)) {
          // The one under way is open; what the reader opened or shut before stays so.
          for (const earlier of groups.values()) earlier.element.open = false;
          groups.set(number, group(number));
          place.append(groups.get(number).element);
        }
        groups.get(number).update(held);
      }
    },
    destroy() {},
  };
}

/** @param {number} number of the candidate */
function group(number) {
  const title = h("span");
  const list = h("ul");
  const element = h("details", { open: true }, h("summary", {}, title), list);
  let drawn = "";
  return {
    element,
    update(held) {
      const gates = [...held.gates.values()];
      const passed = gates.filter((gate) => gate.outcome === "passed").length;
      const told = JSON.stringify([gates, held.outcome]);
      if (told === drawn) return;
      drawn = told;
      const outcome = held.outcome ? `, ${held.outcome}` : "";
      setText(title, `Candidate ${number}: ${held.title}, ${passed} of ${gates.length} passed${outcome}`);
      fill(list, gates.map((gate) =>
        h("li", { class: gate.outcome },
          h("span", { class: "gate" }, gate.name.replaceAll("_", " ")),
          h("span", { class: `mark ${gate.outcome}` }, gate.outcome),
          h("span", { class: "summary" }, gate.summary),
          h("span", { class: "took" }, gate.seconds === null ? "" : seconds(gate.seconds)))));
    },
  };
}
