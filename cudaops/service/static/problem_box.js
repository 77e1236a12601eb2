// An error, where the reader is: title, what to do, and the fields it is about.

import { problemOf } from "./api.js";
import { h } from "./dom.js";

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
