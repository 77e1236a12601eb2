// One job: watched while it runs, read when it has ended. The address is all it needs.

import { cancel, confirmJob, follow, getJson, jobPath, problemOf, randomKey } from "./api.js";
import { age, announce, clock, ENDED, fill, h, outcomeText, problemBox, seconds, setText } from "./dom.js";
import { agentsSection, candidatesSection, filesSection, gatesSection, logSection, resultSection, verdictSection } from "./job_sections.js";
import { statusBadge } from "./jobs_view.js";
import { RunModel } from "./run_model.js";

/** @param {string} id @returns {import("./app.js").View} */
export function jobView(id) {
  const stop = new AbortController();
  const element = h("div", {}, h("h1", { tabindex: -1 }, "Job"), h("p", { class: "note" }, "Looking…"));
  const clean = [() => stop.abort()];
  const open = async () => {
    try {
      const job = await getJson(jobPath(id), { signal: stop.signal });
      // The heading is another one now; whoever stood on it stays on it.
      const stood = element.contains(document.activeElement);
      watch(job, element, stop.signal, clean);
      if (stood) element.querySelector("h1").focus({ preventScroll: true });
    } catch (error) {
      if (stop.signal.aborted) return;
      const stood = element.contains(document.activeElement);
      const title = problemOf(error).status === 404 ? "No such job" : "Job";
      fill(element, h("h1", { tabindex: -1 }, title), problemBox(error, { retry: open }),
        h("p", {}, h("a", { href: "#/" }, "All jobs")));
      if (stood) element.querySelector("h1").focus({ preventScroll: true });
    }
  };
  open();
  return { element, title: `Job ${id.slice(0, 8)}`, destroy: () => clean.forEach((one) => one()) };
}

/** Draw the job and follow it to its end. */
function watch(job, element, signal, clean) {
  const model = new RunModel(job.kind);
  const head = headOf(job);
  const result = resultSection();
  const files = filesSection();
  const live = [agentsSection(), verdictSection(), candidatesSection(), gatesSection(), logSection()];
  const [agents, verdict, candidates, gates, log] = live;
  const over = ENDED.has(job.status);
  const came = [agents.element, verdict.element, candidates.element, gates.element];
  const end = [result.element, files.element];
  // Who watches reads on downwards; who comes later wants the end first.
  fill(element, head.element, over ? [...end, ...came] : [...came, ...end], log.element);
  document.title = `${head.title} · cudaops`;
  let known = job;
  let waiting = 0;

  const draw = () => {
    waiting = 0;
    head.update(known, model);
    for (const section of live) section.update(model, known);
  };
  const soon = () => {
    waiting ||= requestAnimationFrame(draw);
  };
  const tick = setInterval(() => {
    head.tick(known);
    agents.tick();
  }, 1000);
  clean.push(() => clearInterval(tick), () => cancelAnimationFrame(waiting), () => candidates.destroy());

  async function ended() {
    known = await getJson(jobPath(job.id), { signal });
    head.settled();
    draw();
    files.update(known);
    await result.update(known, model, signal);
    if (!over && !result.element.hidden) head.report(result.element);
  }

  const to = {
    signal,
    event: (event) => {
      const aloud = model.add(event);
      if (aloud && !over) announce(aloud);
      if (model.status) known = { ...known, status: model.status };
      soon();
    },
    state: (state, ms) => head.connection(state, ms),
  };
  draw();
  const finish = async () => {
    try {
      await ended();
      await followed;
      if (!signal.aborted) element.dataset.complete = "true";
    } catch (error) {
      if (!signal.aborted) head.problem(error, finish);
    }
  };
  const followed = follow(job.id, to);
  if (over) finish();
  else followed.then((told) => told && finish(), (error) => signal.aborted || head.problem(error));
}

/** Name, status, cancel, and how the connection is. */
function headOf(job) {
  const name = job.kernel ? `${job.kernel} in ${job.filename}` : job.filename;
  const title = `${job.kind} ${name}`;
  const badge = h("span", { class: "status" });
  const facts = h("dl", { class: "facts" });
  const connection = h("p", { class: "connection", role: "status" });
  const trouble = h("div");
  const words = h("span");
  const outcome = h("p", { class: "outcome", hidden: true }, words);
  const button = h("button", { type: "button", class: "danger", hidden: true }, "Cancel this job");
  // Never `disabled`: that would throw the focus away.
  button.addEventListener("click", async () => {
    if (button.getAttribute("aria-disabled")) return;
    button.setAttribute("aria-disabled", "true");
    setText(button, "Cancelling…");
    try {
      await cancel(job.id);
      announce("Cancellation requested");
    } catch (error) {
      fill(trouble, problemBox(error));
      button.removeAttribute("aria-disabled");
      setText(button, "Cancel this job");
    }
  });
  const again = againButton(job.id, trouble);
  const ran = h("dd");
  const element = h("div", {},
    h("div", { class: "heading" }, h("h1", { tabindex: -1 }, title, " ", badge), button, again),
    outcome, facts, connection, trouble);

  function tick(now) {
    const from = Date.parse(now.started_at ?? "");
    const to = now.ended_at ? Date.parse(now.ended_at) : Date.now();
    const waits = now.status === "queued" && now.waiting_for ? `waiting for ${now.waiting_for}` : "waiting";
    setText(ran, now.started_at ? seconds(Math.max(0, (to - from) / 1000)) : `${waits}, submitted ${age(now.created_at)}`);
  }

  function update(now, model) {
    const over = ENDED.has(now.status);
    if (badge.dataset.status !== now.status) {
      badge.dataset.status = now.status;
      fill(badge, statusBadge(now.status));
    }
    const hadFocus = document.activeElement === button;
    button.hidden = over;
    again.hidden = !(now.result?.best);
    if (over && hadFocus) element.querySelector("h1").focus();
    if (now.status === "running" && !now.started_at && model.log.length) now.started_at = model.log[0].time;
    setText(words, outcomeText(now.outcome));
    outcome.hidden = !now.outcome && outcome.childElementCount < 2;
    if (now.problem && !trouble.hasChildNodes()) fill(trouble, failureBox(now.problem));
    const rows = [["Job", now.id], ["Submitted", `${clock(now.created_at)} by ${now.owner}`],
      ["Executor", now.executor], now.worker ? ["Worker", now.worker] : null,
      now.attempts > 1 ? ["Taken up", `${now.attempts} times`] : null,
      model.kernel ? ["Kernel", model.kernel] : null];
    fill(facts, rows.filter(Boolean).map(([term, value]) =>
      h("div", {}, h("dt", {}, term), h("dd", {}, value))), h("div", {}, h("dt", {}, "Time"), ran));
    tick(now);
  }

  const said = {
    connecting: "",
    live: "",
    ended: "",
    lost: (ms) => `Connection lost, trying again in ${Math.ceil(ms / 1000)} s. The job goes on meanwhile.`,
  };
  return {
    element,
    title,
    update,
    tick,
    connection: (state, ms) => {
      // While it is tried again the words stay, until it worked.
      if (state === "connecting" && connection.dataset.state === "lost") return;
      connection.dataset.state = state;
      setText(connection, typeof said[state] === "function" ? said[state](ms) : said[state]);
    },
    problem: (error, retry) => fill(trouble, problemBox(error, { retry })),
    settled: () => fill(trouble),
    report: (place) => {
      const read = () => {
        place.scrollIntoView();
        place.focus({ preventScroll: true });
      };
      outcome.hidden = false;
      outcome.append(" ", h("button", { type: "button", onclick: read }, "Read the result"));
      announce("The job has ended; its result is there");
    },
  };
}

/** Starts a job that judges the kept rewrite with new inputs, and goes there. */
function againButton(id, trouble) {
  const button = h("button", { type: "button", hidden: true }, "Judge it again");
  const key = randomKey(); // a second click, or one after a lost answer, starts no second job
  button.addEventListener("click", async () => {
    if (button.getAttribute("aria-disabled")) return;
    button.setAttribute("aria-disabled", "true");
    try {
      location.hash = `#/jobs/${(await confirmJob(id, key)).id}`;
    } catch (error) {
      fill(trouble, problemBox(error));
      button.removeAttribute("aria-disabled");
    }
  });
  return button;
}

/** Why a job failed. */
const failureBox = (problem) =>
  h("div", { class: "problem" }, h("strong", {}, problem.title),
    problem.detail ? h("p", {}, problem.detail) : null);
