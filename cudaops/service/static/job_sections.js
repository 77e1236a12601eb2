// The parts of a job's page: its agents at work, candidates, gates, verdict, result, files and log.

import { artefactPath, jobPath, request, token } from "./api.js";
import { behind, bytes, fill, h, micros, number, problemBox, s, scrolling, seconds, setText, settings, table, times } from "./dom.js";

// The agents of a run: who is at work, what it says, and how long it took.

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

// The chart of candidates' times: order across, time upwards on a logarithmic scale.

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

// Candidates' times as they come: a chart, and the same numbers in a table.

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
        rows = table("Candidates so far, in order", heads, [], { class: "candidates" });
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

// Gates of each candidate as they pass or fail.

export function gatesSection() {
  const place = h("div", { class: "gates" });
  const element = h("section", { class: "card", "aria-labelledby": "gates-title", hidden: true },
    h("h2", { id: "gates-title" }, "Gates in order"),
    h("p", { class: "note" }, "Cheapest first; the first failure ends the list."), place);
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

// What limits the kernel, as soon as the profiler has it; the latest verdict stands first.

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
    h("p", {}, h("strong", {}, "What helps: "), told.relief));
}

// What the job left, to be taken away.

export function filesSection() {
  const place = h("div");
  const element = h("section", { class: "card", "aria-labelledby": "files-title", hidden: true },
    h("h2", { id: "files-title" }, "Files"), place);
  return {
    element,
    update(job) {
      element.hidden = job.artefacts.length === 0;
      const trouble = h("div");
      const rows = job.artefacts.map((one) =>
        h("tr", {}, h("th", { scope: "row" }, link(job.id, one, trouble)),
          h("td", { class: "num" }, bytes(one.size_bytes)),
          h("td", {}, h("code", {}, one.sha256.slice(0, 16)))));
      const heads = ["Name", { num: "Size" }, "SHA-256 begins"];
      fill(place, trouble, table("Files of the job", heads, rows, { class: "artefacts" }).box);
    },
  };
}

/** A plain link; with a token it is fetched, since a link cannot send one. */
function link(id, one, trouble) {
  const filename = one.name.split("/").join("-");
  const path = artefactPath(id, one.name);
  return h("a", { href: path, download: filename, onclick: async (event) => {
    if (!token()) return;
    event.preventDefault();
    fill(trouble);
    try {
      save(await (await request(path)).blob(), filename);
    } catch (error) {
      fill(trouble, problemBox(error));
    }
  } }, one.name);
}

function save(blob, filename) {
  const address = URL.createObjectURL(blob);
  h("a", { href: address, download: filename }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

// Every event, for whoever wants to know exactly.

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

// The report's markup made inert. The service escapes what is not its own; this is the second lock.

const FORBIDDEN = "script, style, link, meta, base, iframe, frame, object, embed, form, template, portal";
const ADDRESSES = ["href", "src", "action", "formaction", "xlink:href", "poster", "srcset"];

/** @param {string} markup @returns {Node[]} nodes without script, without handlers */
export function inert(markup) {
  const parsed = new DOMParser().parseFromString(markup, "text/html");
  for (const element of parsed.body.querySelectorAll(FORBIDDEN)) element.remove();
  for (const element of parsed.body.querySelectorAll("*")) clean(element);
  const holder = document.createElement("div");
  holder.addEventListener("click", jump);
  holder.append(...parsed.body.childNodes);
  return [holder];
}

/** @param {Element} element */
function clean(element) {
  for (const { name, value } of [...element.attributes]) {
    const address = ADDRESSES.includes(name) && !/^(https?:\/\/|#|\/)/i.test(value.trim());
    if (name.startsWith("on") || name === "style" || name === "srcdoc" || address) {
      element.removeAttribute(name);
    }
  }
}

/** An anchor within the report: the address stays the job's. @param {Event} event */
function jump(event) {
  const link = event.target instanceof Element ? event.target.closest("a[href^='#']") : null;
  if (!link) return;
  event.preventDefault();
  const place = document.getElementById(decodeURIComponent(link.getAttribute("href").slice(1)));
  if (!place) return;
  place.setAttribute("tabindex", "-1");
  place.focus({ preventScroll: true });
  place.scrollIntoView();
}

// What came of an ended job: the report of a run record, or the result of a smaller one.

export function resultSection() {
  const element = h("section", { class: "card", id: "result", "aria-label": "Result", tabindex: -1, hidden: true });
  return {
    element,
    async update(job, model, signal) {
      if (job.status !== "succeeded" || !job.result) return;
      element.hidden = false;
      if (job.kind === "optimize" || job.kind === "verify") {
        element.classList.add("report");
        await report(element, job, signal);
        return;
      }
      const title = h("h2", {}, "Result");
      fill(element, title, RESULTS[job.kind](job.result, model));
    },
  };
}

/** The service's own report, escaped there and made inert here. */
async function report(element, job, signal) {
  const load = async () => {
    try {
      const answer = await request(`${jobPath(job.id)}/report?fragment=1`, { signal });
      fill(element, inert(await answer.text()));
    } catch (error) {
      if (!signal.aborted) fill(element, h("h2", {}, "Report"), problemBox(error, { retry: load }));
    }
  };
  fill(element, h("p", { class: "note" }, "Creating the report…"));
  await load();
}

const output = (label, text) =>
  text ? [h("h3", {}, label), scrolling(h("pre", {}, text), label)] : [];

/** A result or a fault: where, and what. */
const placed = (fault) =>
  fault.location ? `${fault.location.file ?? ""}:${fault.location.line}: ${fault.message}` : fault.message;

/** @type {Record<string, (result: object, model: object) => (Node | Node[] | string)[]>} */
const RESULTS = {
  compile: (result) => [
    h("p", { class: "lead" }, result.ok ? `It compiles (${result.message})` : `It does not compile: ${placed(result)}`),
    result.resources.length ? resources(result.resources) : null,
    ...output("Compiler output", result.log),
  ],
  run: ({ outcome }) => {
    if (outcome.kind !== "program_ran") {
      return [h("p", { class: "lead" }, placed(outcome)), ...output("Log", outcome.log)];
    }
    return [
      h("p", { class: "lead" }, `It ended with exit code ${outcome.exit_code} after ${seconds(outcome.seconds)}.`),
      ...output("stdout", outcome.stdout),
      ...output("stderr", outcome.stderr),
    ];
  },
  profile: (result) => {
    const { baseline } = result;
    const provenance = baseline.source === "measured" ? "" : `${baseline.source} for ${baseline.device}`;
    const rows = Object.values(baseline.metrics).map((one) =>
      h("tr", {}, h("th", { scope: "row" }, h("code", {}, one.name)),
        h("td", { class: "num" }, number(one.value)), h("td", {}, one.unit), h("td", {}, one.source)));
    return [
      h("p", { class: "lead" }, result.verdict),
      h("p", {}, `${micros(baseline.duration_us)}${behind(provenance)}; ${result.metrics_parsed} metrics.`),
      h("details", {}, h("summary", {}, "All metrics"),
        table(`Metrics${behind(provenance)}`, ["Metric", { num: "Value" }, "Unit", "Source"], rows).box),
    ];
  },
  benchmark: (result) => {
    const rows = result.comparisons.map((one) =>
      h("tr", {}, h("th", { scope: "row" }, one.workload), h("td", { class: "num" }, `${number(one.weight * 100)} %`),
        h("td", { class: "num" }, micros(median(one.baseline.samples_us))),
        h("td", { class: "num" }, micros(median(one.candidate.samples_us)))));
    const words = result.provenance;
    return [
      h("p", { class: "lead" }, result.failure ? placed(result.failure)
        : result.speedup ? `${times(result.speedup)}${words}; not judged.` : `${result.kernel}, timed${words}.`),
      rows.length ? table(`Times${words}, most expensive workload first`,
        ["Workload", { num: "Share of time" }, { num: "Author’s kernel" }, { num: "Candidate" }], rows).box : null,
    ];
  },
};

function resources(list) {
  const rows = list.map((one) =>
    h("tr", {}, h("th", { scope: "row" }, h("code", {}, one.kernel)), h("td", {}, one.sm_arch),
      ...[one.registers, one.static_smem_bytes, one.stack_bytes, one.spill_store_bytes + one.spill_load_bytes].map((n) =>
        h("td", { class: "num" }, n))));
  const heads = ["Kernel", "Target", { num: "Registers per thread" }, { num: "Shared memory, B/block" },
    { num: "Stack, B/thread" }, { num: "Spilled, B" }];
  return table("Resources as ptxas reports them", heads, rows).box;
}

function median(samples) {
  const sorted = [...samples].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
