// A job's events: read by fetch, since EventSource cannot send a token; goes on after a break.

import { jobPath, Problem, request } from "./api.js";

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
