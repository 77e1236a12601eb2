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
