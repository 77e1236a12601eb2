// What is known of a job from its events alone: a function of events, without a page.

/** Agents in the order of a run; `review` stands there only where it speaks. */
export const AGENTS = {
  optimize: ["intake", "supervisor", "profiler", "research", "optimizer", "sandbox", "verify", "report"],
  verify: ["intake", "sandbox"],
  profile: ["intake", "profiler"],
};

/**
 * @typedef {{name: string, state: "waiting" | "working" | "done" | "failed", message: string,
 *   seconds: number, visits: number, since: number | null}} Agent
 * @typedef {{kind: "trial" | "branch" | "judged", title: string, values: Record<string, number>,
 *   time_us: number | null, outcome: string, reason: string, speedup: number | null,
 *   low: number | null, high: number | null}} Candidate
 * @typedef {{name: string, outcome: string, summary: string, seconds: number | null}} GateSeen
 */

export class RunModel {
  /** @param {string} kind of the job */
  constructor(kind) {
    this.kind = kind;
    this.clear();
    /** @type {object[]} */
    this.log = [];
    this.seq = 0;
    this.attempt = 1;
    this.status = "";
  }

  /** Forget what a run found; the log stays. */
  clear() {
    /** @type {Map<string, Agent>} */
    this.agents = new Map((AGENTS[this.kind] ?? []).map((name) => [name, idle(name)]));
    /** @type {object[]} */
    this.verdicts = [];
    /** @type {Candidate[]} */
    this.candidates = [];
    /* How often candidates that were told before have changed. */
    this.corrected = 0;
    /** @type {Map<number, {title: string, gates: Map<string, GateSeen>, outcome: string}>} */
    this.gates = new Map();
    this.baseline_us = null;
    this.min_speedup = null;
    this.provenance = "";
    this.kernel = "";
    this.title = "";
  }

  /** @param {object} event a JobEvent; @returns {string | null} what is worth saying aloud */
  add(event) {
    if (event.seq <= this.seq) return null;
    this.seq = event.seq;
    this.log.push(event);
    if (event.kind === "status") {
      this.status = event.message;
      return `The job is ${event.message}`;
    }
    const afresh = event.stage === "intake" && event.kind === "started" && event.attempt > this.attempt;
    if (afresh) this.clear();
    this.attempt = Math.max(this.attempt, event.attempt);
    this.seen(event);
    return this.found(event, event.data ?? {});
  }

  /** Who is at work, and what it says. */
  seen(event) {
    const name = event.agent || event.stage;
    if (event.kind === "notice") return;
    if (!this.agents.has(name)) this.agents.set(name, idle(name));
    const agent = this.agents.get(name);
    if (event.kind === "started") {
      agent.state = "working";
      agent.visits += 1;
      agent.since = Date.parse(event.time);
    }
    if (event.kind === "finished" || event.kind === "failed") {
      agent.state = event.kind === "failed" ? "failed" : "done";
      agent.since = null;
      agent.seconds += event.data?.seconds ?? 0;
    }
    agent.message = event.message;
  }

  /** Numbers that an event brings. @returns {string | null} */
  found(event, data) {
    if (data.provenance) this.provenance = data.provenance;
    if (event.agent === "intake" && event.kind === "finished") {
      this.kernel = data.kernel ?? "";
      this.min_speedup = data.min_speedup ?? null;
    }
    if (event.agent === "profiler" && data.summary) return this.diagnosed(data);
    if (data.gate) this.gate(event, data);
    else if (data.values) this.tried(data);
    else if ("branch" in data) this.branch(data);
    if (data.title) this.title = data.title;
    if (data.trials) this.tuned(data);
    if (data.gates) this.allGates(data);
    if ("candidate_us" in data) return this.judged(data);
    if (event.kind === "started") return `${event.agent}: ${event.message}`;
    return event.kind === "failed" ? `${event.agent} failed: ${event.message}` : null;
  }

  diagnosed(data) {
    if (this.baseline_us === null) this.baseline_us = data.time_us;
    this.verdicts.push(data);
    return `Verdict: ${data.summary}`;
  }

  tried(data) {
    const { values, time_us } = data;
    this.candidates.push(candidate("trial", { title: data.title ?? this.title, values, time_us }));
  }

  branch(data) {
    const reason = data.failure ?? data.family;
    const outcome = data.time_us === null ? "no time" : "timed";
    this.candidates.push(candidate("branch", { ...data, outcome, reason }));
  }

  /** When the tuner has ended: exact times, and the configurations that have none. */
  tuned(data) {
    for (const trial of data.trials) {
      if (trial.time_us !== null) {
        const values = JSON.stringify(trial.values);
        const known = this.candidates.findLast((c) => c.kind === "trial" && JSON.stringify(c.values) === values);
        if (known) known.time_us = trial.time_us;
        continue;
      }
      const told = { title: data.title, values: trial.values, reason: trial.failure ?? "" };
      this.candidates.push(candidate("trial", { ...told, time_us: null, outcome: "no time" }));
    }
    this.corrected += 1;
  }

  judged(data) {
    this.baseline_us = data.baseline_us ?? this.baseline_us;
    const found = { ...data, values: data.tuned, time_us: data.candidate_us };
    this.candidates.push(
      candidate("judged", { ...found, low: data.speedup_low, high: data.speedup_high }),
    );
    return `${data.title}: ${data.outcome}. ${data.reason}`;
  }

  gate(event, data) {
    const held = this.gatesOf(data.iteration ?? 1, data.title ?? this.title);
    const summary = event.message.slice(event.message.indexOf(": ") + 2);
    held.gates.set(data.gate, { name: data.gate, outcome: data.outcome, summary, seconds: null });
  }

  /** The judge's own list: with the gates that no tool announced, and seconds. */
  allGates(data) {
    const number = data.iteration ?? Math.max(1, ...this.gates.keys());
    const held = this.gatesOf(number, data.title ?? this.title);
    held.outcome = data.outcome;
    for (const { name, passed, quarantined, summary, seconds } of data.gates) {
      const outcome = passed ? "passed" : quarantined ? "quarantined" : "failed";
      held.gates.set(name, { name, outcome, summary, seconds });
    }
  }

  gatesOf(iteration, title) {
    if (!this.gates.has(iteration)) this.gates.set(iteration, { title, gates: new Map(), outcome: "" });
    return this.gates.get(iteration);
  }
}

/** @param {string} name @returns {Agent} */
const idle = (name) => ({ name, state: "waiting", message: "", seconds: 0, visits: 0, since: null });

/** @returns {Candidate} */
const candidate = (kind, given) => ({
  kind,
  title: given.title ?? "",
  values: given.values ?? {},
  time_us: given.time_us ?? null,
  outcome: given.outcome ?? "timed",
  reason: given.reason ?? "",
  speedup: given.speedup ?? null,
  low: given.low ?? null,
  high: given.high ?? null,
});
