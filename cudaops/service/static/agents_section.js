// The agents of a run: who is at work, what it says, and how long it took.

import { fill, h, setText } from "./dom.js";
import { seconds } from "./format.js";

const WORDS = { waiting: "waiting", working: "at work", done: "done", failed: "failed" };

export function agentsSection() {
  const list = h("ol", { class: "agents" });
  const element = h("section", { class: "card", "aria-labelledby": "agents-title" },
    h("h2", { id: "agents-title" }, "Agents"), list);
  /** @type {Map<string, ReturnType<typeof item>>} */
  const items = new Map();
  let agents = new Map();

  return {
    element,
    /** @param {import("./run_model.js").RunModel} model @param {object} job */
    update(model, job) {
      agents = model.agents;
      element.hidden = agents.size === 0;
      for (const [name, agent] of agents) {
        if (!items.has(name)) {
          items.set(name, item(name));
          list.append(items.get(name).element);
        }
        items.get(name).update(agent, job.status);
      }
    },
    /** Seconds of whoever is at work. */
    tick() {
      for (const [name, agent] of agents) items.get(name)?.tick(agent);
    },
    destroy() {},
  };
}

/** @param {string} name */
function item(name) {
  const state = h("span", { class: "state" });
  const took = h("span", { class: "took" });
  const message = h("p");
  const element = h("li", { class: "agent" },
    h("div", {}, h("span", { class: "name" }, name), state, took), message);

  function tick(agent) {
    const now = agent.since === null ? 0 : Math.max(0, (Date.now() - agent.since) / 1000);
    const spent = agent.seconds + now;
    const visits = agent.visits > 1 ? ` in ${agent.visits} turns` : "";
    setText(took, agent.visits ? seconds(spent) + visits : "");
  }

  return {
    element,
    tick,
    update(agent, status) {
      const stopped = agent.state === "working" && (status === "cancelled" || status === "failed");
      if (stopped) agent.since = null;
      const shown = stopped ? "failed" : agent.state;
      element.dataset.state = shown;
      fill(state, stopped ? "stopped" : WORDS[shown]);
      if (shown === "working") element.setAttribute("aria-current", "step");
      else element.removeAttribute("aria-current");
      setText(message, agent.message);
      tick(agent);
    },
  };
}
