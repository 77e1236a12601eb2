// Requests to the service, with the token, and errors as problem details (RFC 9457).

import { askForToken, token } from "./token.js";

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
  return new Problem({ title: "The page has a fault", status: -1, detail: String(error) });
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
      throw new Problem({ title: "The service cannot be reached", status: 0, detail });
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

/** @param {string} id @param {string} name */
export const artefactPath = (id, name) =>
  `${jobPath(id)}/artefacts/${name.split("/").map(encodeURIComponent).join("/")}`;

/** A key of 128 random bits; `crypto.randomUUID` is not there without TLS. */
export const randomKey = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
