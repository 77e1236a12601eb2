// What every view is built of: elements, values as people read them, an error where the reader is,
// and the theme's button. Text is always a text node: nothing here parses markup.

import { problemOf } from "./api.js";

// Elements from values. Text is always a text node: nothing here parses markup.

/** @typedef {Node | string | number | null | undefined | false} Child */

const SVG = "http://www.w3.org/2000/svg";

/**
 * @param {Element} element
 * @param {Record<string, unknown>} attributes `on…` is a listener; true and false set or leave out;
 *   `value` and `checked` are properties.
 * @param {(Child | Child[])[]} children
 */
function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on") && typeof value === "function") {
      element.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    } else if (name === "value" || name === "checked") {
      element[name] = value;
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...nodes(children));
  return element;
}

/** @param {(Child | Child[])[]} children @returns {(Node | string)[]} */
function nodes(children) {
  return children
    .flat()
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : String(child)));
}

/**
 * @param {string} tag
 * @param {Record<string, unknown>} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElement}
 */
export function h(tag, attributes = {}, ...children) {
  return /** @type {HTMLElement} */ (filled(document.createElement(tag), attributes, children));
}

/**
 * @param {string} tag
 * @param {Record<string, unknown>} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {SVGElement}
 */
export function s(tag, attributes = {}, ...children) {
  return /** @type {SVGElement} */ (filled(document.createElementNS(SVG, tag), attributes, children));
}

/** Replace what an element holds. @param {Element} element @param {...(Child | Child[])} children */
export function fill(element, ...children) {
  element.replaceChildren(...nodes(children));
}

/** Change a text only where it differs, so that a reader is not told the same again. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * A table that scrolls in a box of its own.
 * @param {string} caption
 * @param {(string | {num: string})[]} heads `num`: over a column of numbers
 * @param {Child[]} rows
 * @param {Record<string, unknown>} [attributes]
 */
export function table(caption, heads, rows, attributes = {}) {
  const head = heads.map((name) =>
    typeof name === "string" ? h("th", { scope: "col" }, name) : h("th", { scope: "col", class: "num" }, name.num),
  );
  const body = h("tbody", {}, rows);
  const whole = h("table", attributes, h("caption", {}, caption), h("thead", {}, h("tr", {}, head)), body);
  return { box: scrolling(whole, caption), body };
}

/** A box that scrolls by itself and can be reached by keyboard for it. */
export function scrolling(child, label) {
  return h("div", { class: "scroll", role: "region", "aria-label": label, tabindex: 0 }, child);
}

/** Tell a screen reader, once, politely. @param {string} text */
export function announce(text) {
  const place = document.getElementById("announcer");
  if (place) setText(place, text);
}

// Values as people read them.

/** @param {number | null | undefined} us microseconds */
export function micros(us) {
  if (us === null || us === undefined) return "no time";
  if (us >= 100_000) return `${(us / 1000).toFixed(1)} ms`;
  return us >= 10 ? `${us.toFixed(1)} µs` : `${us.toPrecision(3)} µs`;
}

/** @param {number | null | undefined} seconds */
export function seconds(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** @param {number | null | undefined} speedup */
export const times = (speedup) => (typeof speedup === "number" ? `${speedup.toFixed(2)}×` : "–");

/** @param {number} bytes */
export function bytes(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  if (bytes < 1024 * 1024) return `${(bytes / 1024).toFixed(1)} KiB`;
  return `${(bytes / 1024 / 1024).toFixed(1)} MiB`;
}

/** @param {string} iso @param {number} [now] milliseconds */
export function age(iso, now = Date.now()) {
  const past = Math.max(0, (now - Date.parse(iso)) / 1000);
  if (past < 60) return `${Math.floor(past)} s ago`;
  if (past < 3600) return `${Math.floor(past / 60)} min ago`;
  if (past < 86_400) return `${Math.floor(past / 3600)} h ago`;
  return `${Math.floor(past / 86_400)} d ago`;
}

/** @param {string} iso */
export const clock = (iso) => (iso ? `${iso.slice(0, 10)} ${iso.slice(11, 19)} UTC` : "");

/** Words in brackets behind a number that was not measured (` (modelled for A10)`), else nothing. */
export const behind = (provenance) => (provenance ? ` (${provenance})` : "");

/** `BM=64, BN=32` of tune values. @param {Record<string, number>} values */
export const settings = (values) =>
  Object.entries(values ?? {})
    .map(([name, value]) => `${name}=${value}`)
    .join(", ");

/** A metric's value: at most three digits that count. @param {number} value */
export function number(value) {
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e6 || size < 1e-2)) return value.toExponential(2);
  return size >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(3)));
}

export const ENDED = new Set(["succeeded", "failed", "cancelled"]);

const OUTCOMES = {
  accepted: "accepted: all gates passed, measured faster",
  provisional: "provisional: all gates passed, the time is not measured on a GPU",
  nothing_found: "nothing beat the bar",
  failed: "failed",
};

/** @param {string | null} outcome of a run record */
export const outcomeText = (outcome) => (outcome ? (OUTCOMES[outcome] ?? outcome) : "");

// An error, where the reader is: title, what to do, and the fields it is about.

/** @param {unknown} error @param {{retry?: () => void}} [options] */
export function problemBox(error, options = {}) {
  const problem = problemOf(error);
  const list = problem.errors.map((one) =>
    h("li", {}, one.path ? h("code", {}, String(one.path)) : null, one.path ? ": " : "", one.message ?? ""),
  );
  return h(
    "div",
    { class: "problem", role: "alert" },
    h("strong", {}, problem.title),
    problem.detail ? h("p", {}, problem.detail) : null,
    list.length ? h("ul", {}, list) : null,
    options.retry ? h("button", { type: "button", onclick: options.retry }, "Try again") : null,
  );
}

// The button that goes round: as the system has it, light, dark.

const THEMES = ["auto", "light", "dark"];

/** @param {HTMLButtonElement} button */
export function themeButton(button) {
  const root = document.documentElement;
  const show = () => {
    button.textContent = `Theme: ${root.dataset.theme ?? "auto"}`;
  };
  button.addEventListener("click", () => {
    const now = THEMES.indexOf(root.dataset.theme ?? "auto");
    const next = THEMES[(now + 1) % THEMES.length];
    if (next === "auto") delete root.dataset.theme;
    else root.dataset.theme = next;
    try {
      localStorage.setItem("cudaops-theme", next);
    } catch {
      // Not kept: the choice holds for this page.
    }
    show();
  });
  show();
}
