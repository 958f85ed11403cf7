// What is read with plain requests: see `web.journal_pages`.
import { request } from "./device.js";
import { ask, readAnswer } from "./end.js";

/** The server has answered with something else than what was asked for. */
class PageError extends Error {
  /** @param {number} status @param {string} told */
  constructor(status, told) {
    super(told);
    this.status = status;
  }
}

/** @param {string} path @param {Record<string, string | number | undefined>} [query] @param {RequestInit} [how] */
export async function read(path, query = {}, how) {
  const address = new URL(path, location.origin);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== "") address.searchParams.set(name, String(value));
  }
  return told(await readAnswer(await reached(request(address, how))));
}

/** A browser's own words for a server that it does not reach are each another. @param {Promise<Response>} asking */
const reached = (asking) =>
  asking.catch((error) => Promise.reject(error instanceof TypeError ? new PageError(0, "The server cannot be reached.") : error));

/** @param {import("./end.js").Answer} answer */
function told({ status, told }) {
  if (status >= 400) throw new PageError(status, told.error ?? `The server answered with status ${status}.`);
  return told;
}

/**
 * @typedef {object} Row  a session as the list has it: see `list --json`
 * @property {string} sessionId
 * @property {string} agent
 * @property {string} agentName  the short one
 * @property {string} cwd
 * @property {string | null} title
 * @property {string} [said]  the last words of its conversation
 * @property {string} createdAt
 * @property {string} updatedAt
 * @property {number} messageCount
 * @property {string | null} outcome
 * @property {boolean} unseen
 * @property {boolean} archived
 * @property {string[]} [tags]
 * @property {boolean} [pinned]  by whoever looks
 * @property {string} [project]  its folder in the main work tree of the repository, if that is another
 * @property {boolean} [byProgram]  no person has prompted it
 * @property {{sessionId: string}[]} [origins]  where its conversation came from, oldest first
 * @property {boolean} [unstarted]  its agent was never started here, as of what was imported
 * @property {string | null} [movedTo]  the machine on which it continues
 * @property {number} queued  queued prompts in it
 * @property {number} ruled  questions that rules have answered in it
 * @property {string | null} held  why they do not go on
 * @property {string | null} heldUntil  when they go on by themselves
 * @property {{state: "idle" | "running" | "waiting", clients: number, background: boolean, questions?: string[]} | null} live
 * @property {import("../model/desk.js").Waiting[]} [openQuestions]  while it waits
 */

/** @typedef {{seq: number, kind: string, at: string, update: Received}} Entry */

/** @typedef {{entries: Entry[], before: number | null, lineage?: string, state?: Received, may?: string[], begun?: string | null, tag?: string | null}} Page  the newest entry first; the last one has the modes, options and commands as last known, what this device may do, and the prompt whose turn runs */

/**
 * @typedef {object} Hit
 * @property {string} sessionId
 * @property {number} seq
 * @property {string} place
 * @property {string} at
 * @property {string} speaker
 * @property {string | null} title
 * @property {string} agent
 * @property {string} agentName  the short one
 * @property {string} cwd
 * @property {boolean} archived
 * @property {string | null} tool
 * @property {string} excerpt
 * @property {[number, number][]} marks
 * @property {string[]} [missing]  words that its conversation does not have
 * @property {string[]} [nowhere]  of these, what no conversation has
 */

/** @param {{q?: string, archived?: string, cursor?: string}} query @returns {Promise<{sessions: Row[], nextCursor?: string}>} */
export const sessions = (query) => read("/sessions", { ...query, said: "true" });

/** @param {string} id @returns {Promise<Row>} */
export const session = (id) => read(`/sessions/${encodeURIComponent(id)}`);

/** Entries of a session from before one of them: of another lineage neither the server nor this device has any. @param {string} id @param {number} before @param {number} limit @param {string} lineage @returns {Promise<Page>} */
export const entries = (id, before, limit, lineage) =>
  read(`/sessions/${encodeURIComponent(id)}/entries`, { before, limit, lineage, brief: "true" });

/** One entry, all of it: pages have of long output only the beginning. @param {string} id @param {number} seq @returns {Promise<Entry | undefined>} */
export async function wholeEntry(id, seq) {
  const page = await read(`/sessions/${encodeURIComponent(id)}/entries`, { before: seq + 1, limit: 1 });
  return page.entries.find((/** @type {Entry} */ entry) => entry.seq === seq);
}

/** The end of a session: as it was read last on this device, null where it was not, and as it is now. @param {string} id @param {boolean} isFirst @returns {{kept: Promise<Page | null>, now: Promise<Page>}} */
export function end(id, isFirst) {
  const name = encodeURIComponent(id);
  const { kept, fresh } = globalThis.early?.id === name ? globalThis.early : ask(name, isFirst);
  globalThis.early = undefined;
  /** @param {import("./end.js").Answer} answer @returns {Page} */
  const page = (answer) => ({ ...told(answer), tag: answer.tag });
  return { kept: kept.then((answer) => answer && page(answer)), now: fresh.then(page) };
}

/** @param {{q: string, in?: string, cursor?: string}} query @param {AbortSignal} [signal] @returns {Promise<{hits: Hit[], nextCursor?: string}>} */
export const search = (query, signal) => read("/search", query, { signal });

/** Exchange a code for a session of this browser. @param {string} code @param {string} name @returns {Promise<import("./device.js").Device>} */
export async function pair(code, name) {
  const how = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ code, name }) };
  return told(await readAnswer(await request("/browser", how)));
}
