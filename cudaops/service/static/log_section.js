// Every event, for whoever wants to know exactly.

import { h, scrolling, setText } from "./dom.js";

export function logSection() {
  const body = h("tbody");
  const summary = h("summary", {}, "Events");
  const whole = h("table", { class: "log" }, h("caption", { class: "unseen" }, "Events of the job, in order"),
    h("thead", {}, h("tr", {}, ["Time", "Agent", "Event"].map((name) => h("th", { scope: "col" }, name)))), body);
  const box = scrolling(whole, "Events of the job");
  const details = h("details", {}, summary, box);
  const element = h("section", { class: "card", "aria-labelledby": "log-title" },
    h("h2", { id: "log-title" }, "Log"), details);
  let drawn = 0;
  return {
    element,
    /** @param {import("./run_model.js").RunModel} model */
    update(model) {
      if (drawn === model.log.length) return;
      const follows = box.scrollTop + box.clientHeight >= box.scrollHeight - 4;
      body.append(...model.log.slice(drawn).map(row));
      drawn = model.log.length;
      setText(summary, `${drawn} events`);
      if (follows) box.scrollTop = box.scrollHeight;
    },
    destroy() {},
  };
}

const row = (event) =>
  h("tr", { class: event.kind },
    h("td", { class: "num" }, h("time", { datetime: event.time }, event.time.slice(11, 23))),
    h("td", {}, event.agent),
    h("td", {}, event.kind === "progress" ? "" : h("span", { class: "kind" }, `${event.kind} `), event.message));
