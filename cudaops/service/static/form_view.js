// Start a job. What was typed stays: over errors, over other views, over a reload.

import { randomKey, submit } from "./api.js";
import { announce, bytes, fill, h, problemBox, setText } from "./dom.js";

// What can be asked for, by kind of job. The service checks all of it; this only offers it.

/** @type {Record<string, {about: string, options: string[], candidate?: string}>} */
export const KINDS = {
  optimize: {
    about: "Profile the kernel, say what limits it, rewrite it, and keep a rewrite only if every gate passes.",
    options: ["kernel", "executor", "optimizer", "max_iterations", "min_speedup", "strategy", "device",
      "arguments", "timeout_seconds", "max_trials", "budget_minutes", "allow_precision", "allow_libraries"],
  },
  profile: {
    about: "Say what limits the kernel, and stop there.",
    options: ["kernel", "executor", "device", "arguments", "timeout_seconds"],
  },
  verify: {
    about: "Judge a rewrite of yours: same function, same precision, faster.",
    options: ["kernel", "executor", "min_speedup", "device", "arguments", "timeout_seconds",
      "allow_precision", "allow_libraries"],
    candidate: "The rewrite: device source with @launch directives, or a whole program",
  },
  benchmark: {
    about: "Time the kernel, and a rewrite beside it; judges nothing.",
    options: ["kernel", "executor", "device", "arguments", "timeout_seconds"],
    candidate: "The rewrite: device source with @launch directives (optional)",
  },
  compile: {
    about: "Compile the kernel, or a rewrite of it.",
    options: ["kernel", "executor", "device", "arch"],
    candidate: "The rewrite: device source with @launch directives (optional)",
  },
  run: {
    about: "Run the whole program once and show what it prints.",
    options: ["executor", "arguments", "timeout_seconds"],
  },
};

/** @type {Record<string, object>} `number` and `split` say how the text becomes a value. */
export const OPTIONS = {
  kernel: { label: "Kernel", placeholder: "the one with most time" },
  executor: { label: "Executor", values: ["auto", "cpu", "cuda"],
    note: "cpu: this service’s processor, times modelled. auto: a GPU where there is one." },
  optimizer: { label: "Optimizer", values: ["auto", "recipes", "llm"],
    note: "auto: the service’s model where it has one, recipes otherwise." },
  max_iterations: { label: "Candidates to try", type: "number", min: 1, max: 50, placeholder: "3" },
  min_speedup: { label: "Speedup to reach", type: "number", min: 1, step: 0.05, placeholder: "1.2" },
  strategy: { label: "Search", values: ["greedy", "branch", "beam"] },
  device: { label: "Device to model", placeholder: "A10" },
  arch: { label: "nvcc target", placeholder: "the device’s, e.g. sm_86" },
  arguments: { label: "Program’s arguments", placeholder: "512 512", note: "Separated by spaces." },
  timeout_seconds: { label: "Limit for one run, s", type: "number", min: 1, max: 600, placeholder: "120" },
  max_trials: { label: "Trials of the tuner", type: "number", min: 1, max: 1000, placeholder: "10" },
  budget_minutes: { label: "Budget, min", type: "number", min: 0, max: 720, placeholder: "none" },
  allow_precision: { label: "Less exact arithmetic", values: ["none", "tf32", "fp16", "bf16"] },
  allow_libraries: { label: "Candidates may include CUB, libcu++, CUTLASS", type: "checkbox" },
};

/**
 * The request's body. What was left empty is left out, so that the service's own default holds.
 * @param {Record<string, any>} draft
 */
export function requestOf(draft) {
  const kind = KINDS[draft.kind];
  /** @type {Record<string, unknown>} */
  const body = { source: draft.source };
  if (draft.filename) body.filename = draft.filename;
  if (Object.keys(draft.files).length) body.files = draft.files;
  if (kind.candidate && draft.candidate) body.candidate = draft.candidate;
  for (const name of kind.options) {
    const given = draft.options[name];
    if (given === undefined || given === "" || given === false || given === "none") continue;
    if (name === "arguments") body.argv = given.split(/\s+/).filter(Boolean);
    else body[name] = OPTIONS[name].type === "number" ? Number(given) : given;
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
    fill(options, kind.options.map((name) => field(name)));
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
      h("span", { class: "note" }, "The program is compiled and run on the service’s machine, confined.")),
  );
  form.addEventListener("submit", start);
  drawOptions();
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
      h("span", { class: "note" }, "A matrix product as one would first write it.")),
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

/** @param {string} name of an option */
function field(name) {
  const { label, note, values, ...attributes } = OPTIONS[name];
  const given = draft.options[name];
  const changed = (e) => {
    draft.options[name] = e.target.type === "checkbox" ? e.target.checked : e.target.value;
    keep();
  };
  const hint = note ? h("span", { class: "note", id: `note-${name}` }, note) : null;
  const described = { name, "aria-describedby": hint ? `note-${name}` : null };
  if (values) {
    const options = values.map((v) => h("option", { value: v, selected: v === given }, v));
    return h("div", {}, h("label", {}, label, h("select", { ...described, onchange: changed }, options)), hint);
  }
  if (attributes.type === "checkbox") {
    const box = h("input", { ...described, type: "checkbox", checked: given === true, onchange: changed });
    return h("div", {}, h("label", { class: "check" }, box, label), hint);
  }
  const input = h("input", { ...described, ...attributes, value: given ?? "", oninput: changed,
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
