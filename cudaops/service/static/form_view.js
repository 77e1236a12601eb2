// Start a job. What was typed stays: over errors, over other views, over a reload.

import { getJson, randomKey, submit } from "./api.js";
import { announce, bytes, fill, h, problemBox, setText } from "./dom.js";

// Which options there are, with type, bounds, default and description, the service itself says.

/** @type {Record<string, {about: string, candidate?: string}>} */
const KINDS = {
  optimize: {
    about: "Profile the kernel, say what limits it, rewrite it, and keep a rewrite only if every gate passes.",
  },
  profile: { about: "Profile and diagnose only." },
  verify: {
    about: "Judge your rewrite: same function, same precision, faster.",
    candidate: "The rewrite: device source with @launch directives, or a whole program",
  },
  benchmark: {
    about: "Time the kernel and a rewrite; no judgement.",
    candidate: "The rewrite: device source with @launch directives (optional)",
  },
  compile: {
    about: "Compile the kernel, or a rewrite of it.",
    candidate: "The rewrite: device source with @launch directives (optional)",
  },
  run: { about: "Run the whole program once and show what it prints." },
};

/** What the form asks in other ways. */
const NO_OPTIONS = new Set(["source", "filename", "files", "candidate"]);

/** Short names, in the order of the form; an option without one stands behind these by its own name. */
const LABELS = {
  kernel: "Kernel", executor: "Executor", optimizer: "Optimizer", max_iterations: "Maximum candidates",
  min_speedup: "Required speedup", strategy: "Search", beam_width: "Width of the search",
  beam_rounds: "Rounds of the search", device: "Device to model", arch: "nvcc target",
  argv: "Program’s arguments", timeout_seconds: "Limit for one run, s", max_trials: "Tuner trials",
  budget_minutes: "Budget, min", max_cost_usd: "Budget of the model, US dollars",
  max_tokens: "Budget of the model, tokens", allow_precision: "Reduced precision",
  allow_libraries: "Libraries", allow_ptx: "Inline PTX",
  allow_reassociation: "Other formulas", seed: "Seed",
};

/** Schemas of the requests, by the service's own description; asked for once. */
let schemas = null;

async function load() {
  schemas ??= (await getJson("/openapi.json")).components.schemas;
}

/** An option's schema without the null of one that may be left out. @param {object} schema */
const plain = (schema) => ({ ...schema, ...schema.anyOf?.find((one) => one.type !== "null") });

/** @param {string} kind @returns {[string, object][]} its options with their schemas, in the form's order */
function optionsOf(kind) {
  const fields = schemas[`${kind[0].toUpperCase()}${kind.slice(1)}Request`].properties;
  const order = Object.keys(LABELS);
  const place = (name) => (order.includes(name) ? order.indexOf(name) : order.length);
  return Object.entries(fields)
    .filter(([name]) => !NO_OPTIONS.has(name))
    .map(([name, schema]) => [name, plain(schema)])
    .sort(([a], [b]) => place(a) - place(b));
}

/**
 * The request's body. What was left empty is left out, so that the service's own default holds.
 * @param {Record<string, any>} draft
 */
function requestOf(draft) {
  /** @type {Record<string, unknown>} */
  const body = { source: draft.source };
  if (draft.filename) body.filename = draft.filename;
  if (Object.keys(draft.files).length) body.files = draft.files;
  if (KINDS[draft.kind].candidate && draft.candidate) body.candidate = draft.candidate;
  for (const [name, schema] of optionsOf(draft.kind)) {
    const given = draft.options[name];
    if (given === undefined || given === "" || given === false || given === "none") continue;
    const numeric = schema.type === "number" || schema.type === "integer";
    if (schema.type === "array") body[name] = given.split(/\s+/).filter(Boolean);
    else body[name] = numeric ? Number(given) : given;
  }
  return body;
}

const KEY = "cudaops-draft";
/** @type {Record<string, any>} */
let draft = recalled();

function recalled() {
  const empty = { kind: "optimize", source: "", filename: "", files: {}, candidate: "", options: {}, key: "" };
  try {
    return { ...empty, ...JSON.parse(sessionStorage.getItem(KEY) ?? "{}") };
  } catch {
    return empty;
  }
}

function keep() {
  draft.key = ""; // another wish than the one sent before
  try {
    sessionStorage.setItem(KEY, JSON.stringify(draft));
  } catch {
    // Too long to be kept over a reload; it is kept over everything else.
  }
}

/** @returns {import("./app.js").View} */
export function formView() {
  const trouble = h("div", { tabindex: -1 });
  const send = h("button", { type: "submit", class: "main" }, "Start");
  const form = h("form", { class: "newjob", novalidate: true });
  const source = sourcePart();
  const options = h("div", { class: "options" });
  const about = h("p", { class: "note", id: "kind-note" });
  const kinds = h("select", { name: "kind", "aria-describedby": "kind-note", onchange: (e) => {
    draft.kind = e.target.value;
    keep();
    drawOptions();
  } }, Object.keys(KINDS).map((k) => h("option", { value: k, selected: k === draft.kind }, k)));

  function drawOptions() {
    const kind = KINDS[draft.kind];
    setText(about, kind.about);
    setText(send, `Start ${draft.kind}`);
    fill(options, schemas ? optionsOf(draft.kind).map(([name, schema]) => field(name, schema)) : null);
    source.candidate.hidden = !kind.candidate;
    setText(source.candidateLabel, kind.candidate ?? "");
  }

  async function start(event) {
    event.preventDefault();
    if (form.getAttribute("aria-busy")) return;
    form.setAttribute("aria-busy", "true");
    send.setAttribute("aria-disabled", "true");
    draft.key ||= randomKey();
    try {
      await load();
      const job = await submit(draft.kind, requestOf(draft), draft.key);
      announce("The job is submitted");
      draft.key = "";
      location.hash = `#/jobs/${job.id}`;
    } catch (error) {
      fill(trouble, problemBox(error));
      mark(form, error.errors ?? []);
      trouble.focus();
      trouble.scrollIntoView({ block: "nearest" });
    } finally {
      send.removeAttribute("aria-disabled");
      form.removeAttribute("aria-busy");
    }
  }

  form.append(
    source.element,
    h("fieldset", {}, h("legend", {}, "What to do"),
      h("div", { class: "options" }, h("label", {}, "Job", kinds)), about, options),
    trouble,
    h("div", { class: "row" }, send,
      h("span", { class: "note" }, "The program is compiled and run in isolation on the service’s machine.")),
  );
  form.addEventListener("submit", start);
  drawOptions();
  const retry = () => load().then(() => {
    fill(trouble);
    drawOptions();
  }, (error) => fill(trouble, problemBox(error, { retry })));
  retry();
  const element = h("div", {}, h("h1", { tabindex: -1 }, "New job"), form);
  return { element, title: "New job", destroy: () => {} };
}

/** The text of the program, its headers, and a rewrite. */
function sourcePart() {
  const text = h("textarea", { name: "source", rows: 16, spellcheck: "false", autocapitalize: "off",
    autocomplete: "off", value: draft.source, required: true,
    placeholder: "__global__ void …, with its main()", oninput: (e) => {
      draft.source = e.target.value;
      keep();
    } });
  const name = h("input", { name: "filename", value: draft.filename, placeholder: "program.cu",
    spellcheck: "false", autocomplete: "off", oninput: (e) => {
      draft.filename = e.target.value;
      keep();
    } });
  const headers = h("ul", { class: "files" });
  const candidateLabel = h("span");
  const candidateText = h("textarea", { name: "candidate", rows: 10, spellcheck: "false",
    value: draft.candidate, oninput: (e) => {
      draft.candidate = e.target.value;
      keep();
    } });
  const candidate = h("label", { class: "wide" }, candidateLabel, candidateText);

  const take = (content, filename) => {
    text.value = draft.source = content;
    name.value = draft.filename = filename;
    keep();
    announce(`${filename} is in the form`);
  };
  const drawHeaders = () =>
    fill(headers, Object.entries(draft.files).map(([path, content]) =>
      h("li", {}, h("code", {}, path), ` ${bytes(content.length)} `,
        h("button", { type: "button", class: "quiet", "aria-label": `Leave out ${path}`, onclick: () => {
          delete draft.files[path];
          keep();
          drawHeaders();
        } }, "Leave out"))));
  drawHeaders();
  const choose = (label, accept, multiple, done) =>
    h("label", {}, label, h("input", { type: "file", accept, multiple, onchange: async (e) => {
      for (const file of e.target.files) done(await file.text(), file.name);
      e.target.value = "";
    } }));
  const element = h("fieldset", {}, h("legend", {}, "Program"),
    h("div", { class: "row" },
      h("button", { type: "button", onclick: async () => {
        const example = await fetch("/static/naive_matmul.cu");
        take(await example.text(), "naive_matmul.cu");
      } }, "Try the example"),
      h("span", { class: "note" }, "Naive matrix product.")),
    h("label", { class: "wide" }, "CUDA source", text),
    h("div", { class: "options" }, h("label", {}, "File name", name),
      choose("Or choose a .cu file", ".cu,.cuh,.cpp,.txt", false, take),
      choose("Local headers", ".h,.cuh,.hpp,.inc", true, (content, path) => {
        draft.files[path] = content;
        keep();
        drawHeaders();
      })),
    headers, candidate);
  return { element, candidate, candidateLabel };
}

/** @param {string} name of an option @param {object} schema */
function field(name, schema) {
  const given = draft.options[name];
  const changed = (e) => {
    draft.options[name] = e.target.type === "checkbox" ? e.target.checked : e.target.value;
    keep();
  };
  const label = LABELS[name] ?? name;
  const separated = schema.type === "array" ? " Separated by spaces." : "";
  const note = `${(schema.description ?? "").replaceAll("`", "")}${separated}`;
  const hint = h("span", { class: "note", id: `note-${name}` }, note);
  const described = { name, "aria-describedby": `note-${name}` };
  if (schema.enum) {
    const values = schema.default === null ? ["none", ...schema.enum] : schema.enum;
    const options = values.map((v) => h("option", { value: v, selected: v === (given ?? schema.default) }, v));
    return h("div", {}, h("label", {}, label, h("select", { ...described, onchange: changed }, options)), hint);
  }
  if (schema.type === "boolean") {
    const box = h("input", { ...described, type: "checkbox", checked: given === true, onchange: changed });
    return h("div", {}, h("label", { class: "check" }, box, label), hint);
  }
  const numeric = schema.type === "number" || schema.type === "integer";
  const attributes = numeric
    ? { type: "number", min: schema.minimum, max: schema.maximum, step: schema.type === "integer" ? 1 : "any" }
    : {};
  const placeholder = schema.default === null || schema.type === "array" ? "" : String(schema.default);
  const input = h("input", { ...described, ...attributes, placeholder, value: given ?? "", oninput: changed,
    spellcheck: "false", autocomplete: "off" });
  return h("div", {}, h("label", {}, label, input), hint);
}

/** Mark the fields that a refusal names. */
function mark(form, errors) {
  const named = new Set(errors.map((one) => String(one.path ?? "").split(/[.\[/]/).filter(Boolean).at(0)));
  const last = new Set(errors.map((one) => String(one.path ?? "").split(/[.\[/]/).filter(Boolean).at(-1)));
  for (const control of form.elements) {
    const wrong = control.name && (named.has(control.name) || last.has(control.name));
    if (wrong) control.setAttribute("aria-invalid", "true");
    else control.removeAttribute("aria-invalid");
  }
}
