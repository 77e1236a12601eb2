// The service as the page asks it: the bearer token, requests, errors as problem details (RFC 9457),
// and a job's events.

// The bearer token: in this tab's session storage, and in no other place.

const KEY = "cudaops-token";
let kept = "";

export function token() {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return kept;
  }
}

/** @param {string} value empty: forget it */
function keep(value) {
  kept = value;
  try {
    if (value) sessionStorage.setItem(KEY, value);
    else sessionStorage.removeItem(KEY);
  } catch {
    // Without storage it holds until the page is left.
  }
}

const dialog = () => /** @type {HTMLDialogElement} */ (document.getElementById("token-dialog"));

/** @type {Promise<boolean> | null} */
let asking = null;

/**
 * Ask for a token; requests that are refused meanwhile wait for the same answer.
 * @param {string} why one line
 * @returns {Promise<boolean>} whether there is a token to try
 */
export function askForToken(why) {
  asking ??= ask(why).finally(() => {
    asking = null;
  });
  return asking;
}

/** @param {string} why */
function ask(why) {
  const box = dialog();
  const field = /** @type {HTMLInputElement} */ (document.getElementById("token-field"));
  document.getElementById("token-why").textContent = why;
  document.getElementById("token-forget").hidden = !token();
  const before = token();
  field.value = "";
  box.returnValue = "cancel";
  box.showModal();
  field.focus();
  return new Promise((resolve) => {
    box.addEventListener(
      "close",
      () => {
        if (box.returnValue === "use") keep(field.value.trim());
        if (box.returnValue === "forget") keep("");
        resolve(box.returnValue === "use" && token() !== "");
        field.value = "";
        if (token() !== before) document.dispatchEvent(new Event("token-changed"));
      },
      { once: true },
    );
  });
}

// Requests to the service, with the token, and errors as problem details (RFC 9457).

/** @typedef {{title: string, status: number, detail?: string,
 *   errors?: {path?: string, message?: string}[]}} ProblemDetails */

/** An answer that is an error, or no answer at all (status 0). */
export class Problem extends Error {
  /** @param {ProblemDetails} details */
  constructor(details) {
    super(details.detail ? `${details.title}: ${details.detail}` : details.title);
    this.title = details.title;
    this.detail = details.detail ?? "";
    this.status = details.status;
    this.errors = Array.isArray(details.errors) ? details.errors : [];
  }
}

/** @param {unknown} error */
export function problemOf(error) {
  if (error instanceof Problem) return error;
  return new Problem({ title: "The page has an error", status: -1, detail: String(error) });
}

/** @param {Response} response */
async function refusal(response) {
  try {
    const details = await response.json();
    if (typeof details.title === "string") return new Problem({ status: response.status, ...details });
  } catch {
    // Not problem details: a proxy's page, say.
  }
  const title = `The service answered ${response.status} ${response.statusText}`.trim();
  return new Problem({ title, status: response.status });
}

/**
 * One request. Asks for a token where the service wants one, and then sends it again.
 * @param {string} path
 * @param {RequestInit & {headers?: Record<string, string>}} [options]
 * @returns {Promise<Response>} an answer that is no error; throws Problem otherwise
 */
export async function request(path, options = {}) {
  for (;;) {
    const sent = token();
    const headers = { ...options.headers };
    if (sent) headers.Authorization = `Bearer ${sent}`;
    let response;
    try {
      response = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
    } catch (error) {
      if (options.signal?.aborted) throw error;
      const detail = "check that it runs and that this machine is connected, then try again";
      throw new Problem({ title: "The service does not respond", status: 0, detail });
    }
    if (response.ok) return response;
    const problem = await refusal(response);
    if (response.status !== 401) throw problem;
    if (sent !== token()) continue; // another request has asked meanwhile
    const why = sent
      ? "The service does not know this token, or it has expired."
      : "This service asks for a token.";
    if (!(await askForToken(why))) throw problem;
  }
}

/** @param {string} path @param {RequestInit} [options] */
export const getJson = async (path, options) => (await request(path, options)).json();

/** @param {string} id */
export const jobPath = (id) => `/jobs/${encodeURIComponent(id)}`;

/** @param {string} kind @param {object} body @param {string} key the same for the same wish */
export const submit = async (kind, body, key) =>
  (
    await request(`/${kind}`, {
      method: "POST",
      headers: { "Content-Type": "application/json", "Idempotency-Key": key },
      body: JSON.stringify(body),
    })
  ).json();

/** @param {string} id */
export const cancel = async (id) => (await request(`${jobPath(id)}/cancel`, { method: "POST" })).json();

/** Judge what the job kept once more. @param {string} id @param {string} key @returns the new job */
export const confirmJob = async (id, key) =>
  (await request(`${jobPath(id)}/confirm`, { method: "POST", headers: { "Idempotency-Key": key } })).json();

/** @param {string} id @param {string} name */
export const artefactPath = (id, name) =>
  `${jobPath(id)}/artefacts/${name.split("/").map(encodeURIComponent).join("/")}`;

/** A key of 128 random bits; `crypto.randomUUID` is not there without TLS. */
export const randomKey = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");

// A job's events: read by fetch, since EventSource cannot send a token; goes on after a break.

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15_000;
const SILENCE_MS = 45_000;
/* Three of the service's keep-alive comments (one every 15 s): no word for that long means that the
   connection is gone although nobody said so. */

/**
 * Follow a job until it has ended or `signal` is aborted.
 * @param {string} id
 * @param {{event: (event: object) => void, state: (state: string, waitMs?: number) => void,
 *   signal: AbortSignal}} to `state`: `connecting`, `live`, `lost` (tries again in `waitMs`), `ended`
 * @returns {Promise<object | null>} the job's summary at its end; null where aborted
 */
export async function follow(id, to) {
  let after = 0;
  let wait = FIRST_WAIT_MS;
  while (!to.signal.aborted) {
    to.state("connecting");
    try {
      const end = await once(id, after, to, (seq) => {
        after = seq;
        wait = FIRST_WAIT_MS;
      });
      if (end) {
        to.state("ended");
        return end;
      }
    } catch (error) {
      if (to.signal.aborted) break;
      const again = !(error instanceof Problem) || error.status === 0 || error.status >= 429;
      if (!again) throw error;
    }
    if (to.signal.aborted) break;
    const jittered = wait * (0.75 + Math.random() / 2);
    to.state("lost", jittered);
    await pause(jittered, to.signal);
    wait = Math.min(wait * 2, LONGEST_WAIT_MS);
  }
  return null;
}

/** One connection, from `after` on; the summary where the job's end was told. */
async function once(id, after, to, reached) {
  const stop = new AbortController();
  const give_up = () => stop.abort();
  to.signal.addEventListener("abort", give_up, { once: true });
  addEventListener("offline", give_up, { once: true });
  let silence = setTimeout(give_up, SILENCE_MS);
  let read = false;
  try {
    const response = await request(`${jobPath(id)}/events?after=${after}`, {
      headers: { Accept: "text/event-stream" },
      signal: stop.signal,
    });
    to.state("live");
    let end = null; // the service closes the stream behind it
    for await (const message of messages(response.body)) {
      clearTimeout(silence);
      silence = setTimeout(give_up, SILENCE_MS);
      if (message.event === "end") end = JSON.parse(message.data);
      if (end || !message.data) continue;
      const event = JSON.parse(message.data);
      if (event.seq <= after) continue;
      after = event.seq;
      reached(after);
      to.event(event);
    }
    read = true;
    return end;
  } finally {
    clearTimeout(silence);
    to.signal.removeEventListener("abort", give_up);
    removeEventListener("offline", give_up);
    if (!read) stop.abort();
  }
}

/** Server-sent events of a body; a comment counts as a message without data. */
async function* messages(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (waiting + value).replaceAll("\r\n", "\n").split("\n\n");
    waiting = blocks.pop();
    for (const block of blocks) yield message(block);
  }
}

/** @param {string} block lines of one event */
export function message(block) {
  const found = { event: "message", data: "" };
  const data = [];
  for (const line of block.split("\n")) {
    const [, name, value] = /^([^:]*):? ?(.*)$/.exec(line) ?? [];
    if (name === "event") found.event = value;
    if (name === "data") data.push(value);
  }
  found.data = data.join("\n");
  return found;
}

/** Wait; shorter where the machine comes back online. */
function pause(ms, signal) {
  return new Promise((resolve) => {
    const go = () => {
      clearTimeout(timer);
      removeEventListener("online", go);
      signal.removeEventListener("abort", go);
      resolve();
    };
    const timer = setTimeout(go, ms);
    addEventListener("online", go);
    signal.addEventListener("abort", go);
  });
}
