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
