// Start a job. What was typed stays: over errors, over other views, over a reload.

import { randomKey, submit } from "./api.js";
import { announce, fill, h, setText } from "./dom.js";
import { KINDS, OPTIONS, requestOf } from "./form_fields.js";
import { bytes } from "./format.js";
import { problemBox } from "./problem_box.js";

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
