// The list of jobs: filtered, refreshed while it is looked at.

import { getJson } from "./api.js";
import { age, announce, clock, ENDED, fill, h, problemBox, setText, table } from "./dom.js";

const REFRESH_MS = 2500;
const PAGE = 50;
const STATUSES = ["queued", "running", "succeeded", "failed", "cancelled"];
const KINDS = ["optimize", "profile", "verify", "benchmark", "compile", "run"];

/** What the reader has chosen, for the way back. */
const chosen = { status: "", kind: "", text: "" };

/** @returns {import("./app.js").View} */
export function jobsView() {
  const stop = new AbortController();
  const older = [];
  /** @type {Map<string, {row: HTMLElement, update: (job: object) => void}>} */
  const rows = new Map();
  const heads = ["Job", "Kind", "Status", "Outcome", "Where", "Started by", "Age"];
  const list = table("Jobs, newest first", heads, [], { class: "jobs" });
  const count = h("p", { class: "note" }, "Looking…");
  const trouble = h("div");
  const more = h("button", { type: "button", hidden: true, onclick: () => next() }, "Show older jobs");
  let newest = [];
  let timer = 0;

  function draw() {
    const all = [...newest, ...older.filter((o) => !newest.some((n) => n.id === o.id))];
    const wanted = all.filter(matches);
    const kept = new Set(wanted.map((job) => job.id));
    for (const [id, one] of rows) {
      if (!kept.has(id)) {
        one.row.remove();
        rows.delete(id);
      }
    }
    wanted.forEach((job, place) => {
      if (!rows.has(job.id)) rows.set(job.id, rowOf(job));
      const one = rows.get(job.id);
      one.update(job);
      if (list.body.children[place] !== one.row) {
        list.body.insertBefore(one.row, list.body.children[place] ?? null);
      }
    });
    list.box.hidden = wanted.length === 0;
    setText(count, all.length === 0 ? "No job yet." : `${wanted.length} of ${all.length} shown`);
  }

  const query = (before) => {
    const asked = new URLSearchParams({ limit: String(PAGE) });
    if (chosen.status) asked.set("status", chosen.status);
    if (chosen.kind) asked.set("kind", chosen.kind);
    if (before) asked.set("before", before);
    return getJson(`/jobs?${asked}`, { signal: stop.signal }).then(jobsOf);
  };

  async function refresh() {
    clearTimeout(timer);
    if (!document.hidden) {
      try {
        newest = await query("");
        if (older.length === 0) more.hidden = newest.length < PAGE;
        fill(trouble);
        draw();
      } catch (error) {
        if (stop.signal.aborted) return;
        // The list stays; it only is not fresh.
        const refused = error.status === 401 || error.status === 403;
        if (refused || !trouble.hasChildNodes()) fill(trouble, problemBox(error, { retry: refresh }));
        if (refused) return; // asking again by itself would open the same question again
      }
    }
    clearTimeout(timer);
    if (!stop.signal.aborted) timer = setTimeout(refresh, REFRESH_MS);
  }

  async function next() {
    const last = [...newest, ...older].at(-1);
    try {
      const found = await query(last.id);
      older.push(...found);
      more.hidden = found.length < PAGE;
      draw();
      announce(`${found.length} older jobs`);
    } catch (error) {
      fill(trouble, problemBox(error));
    }
  }

  const changed = () => {
    older.length = 0;
    refresh().then(() => announce(count.textContent));
  };
  const element = h(
    "div",
    {},
    h("div", { class: "heading" }, h("h1", { tabindex: -1 }, "Jobs"),
      h("a", { class: "button main", href: "#/new" }, "New job")),
    filters(changed, draw),
    trouble,
    count,
    list.box,
    more,
  );
  list.box.hidden = true;
  document.addEventListener("visibilitychange", refresh);
  document.addEventListener("token-changed", refresh);
  refresh();
  return {
    element,
    title: "Jobs",
    destroy: () => {
      stop.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", refresh);
      document.removeEventListener("token-changed", refresh);
    },
  };
}

/** @param {unknown} answer */
const jobsOf = (answer) => (Array.isArray(answer) ? answer : answer.jobs);

function matches(job) {
  const text = chosen.text.toLowerCase();
  const words = [job.filename, job.kernel, job.id, job.owner, job.outcome, job.executor];
  return !text || words.some((word) => word?.toLowerCase().includes(text));
}

function filters(changed, draw) {
  const select = (name, label, values) =>
    h("label", {}, label, " ",
      h("select", { name, value: chosen[name], onchange: (e) => {
        chosen[name] = e.target.value;
        changed();
      } },
        h("option", { value: "" }, "any"),
        values.map((v) => h("option", { value: v, selected: chosen[name] === v }, v))));
  const text = h("label", {}, "Find ", h("input", {
    type: "search", value: chosen.text, placeholder: "file, kernel, id",
    oninput: (e) => {
      chosen.text = e.target.value;
      draw();
    },
  }));
  return h("form", { class: "filters", role: "search", "aria-label": "Filter the jobs",
    onsubmit: (e) => e.preventDefault() },
    select("status", "Status", STATUSES), select("kind", "Kind", KINDS), text);
}

function rowOf(job) {
  const status = h("td");
  const outcome = h("td");
  const when = h("time", { datetime: job.created_at, title: clock(job.created_at) });
  const name = job.kernel ? `${job.kernel} in ${job.filename}` : job.filename;
  const link = h("a", { href: `#/jobs/${job.id}` }, name);
  const row = h("tr", {},
    h("th", { scope: "row" }, link, h("span", { class: "id" }, ` ${job.id.slice(0, 8)}`)),
    h("td", {}, job.kind), status, outcome, h("td", {}, job.executor), h("td", {}, job.owner),
    h("td", {}, when));
  let drawn = "";
  return {
    row,
    update: (now) => {
      setText(when, age(now.created_at));
      const told = `${now.status} ${now.outcome} ${now.problem?.title}`;
      if (told === drawn) return;
      drawn = told;
      fill(status, statusBadge(now.status));
      fill(outcome, now.outcome?.replace("_", " ") ?? now.problem?.title ?? (ENDED.has(now.status) ? "–" : ""));
    },
  };
}

/** A status as word and colour. @param {string} status */
export const statusBadge = (status) => h("span", { class: `badge ${status}` }, status);
