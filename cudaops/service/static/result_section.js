// What came of an ended job: the report of a run record, or the result of a smaller one.

import { jobPath, request } from "./api.js";
import { fill, h, scrolling, table } from "./dom.js";
import { behind, micros, number, seconds, times } from "./format.js";
import { problemBox } from "./problem_box.js";
import { inert } from "./report.js";

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
  fill(element, h("p", { class: "note" }, "The report is being drawn…"));
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
    ...output("What the compiler printed", result.log),
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
        : result.speedup ? `${times(result.speedup)}${words}; nothing was judged.` : `${result.kernel}, timed${words}.`),
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
  const heads = ["Kernel", "Target", { num: "Registers a thread" }, { num: "Shared, B a block" },
    { num: "Stack, B a thread" }, { num: "Spilled, B" }];
  return table("Resources as ptxas reports them", heads, rows).box;
}

function median(samples) {
  const sorted = [...samples].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
