// The end of a session, which is what is shown of it first.
import { device, kept as keptOf, request } from "./device.js";

/** Entries that are more than a screen, mostly; what is before them follows when somebody goes up. */
const ENTRIES = 40;

/** @typedef {{status: number, tag: string | null, told: Received}} Answer  one that was read */

/**
 * @typedef {object} Asked
 * @property {string} id  as it stands in an address
 * @property {Promise<Answer | null>} kept  as the service worker kept it when it was read last
 * @property {Promise<Answer>} fresh  as it is now
 */

/** @param {string} id @returns {Asked} */
export function ask(id) {
  const address = `/sessions/${id}/entries?limit=${ENTRIES}`;
  /** @type {Answer | null} */
  let read = null;
  // What is the same as what was kept is not read twice.
  const fresh = request(address).then((answer) => {
    if (!read?.tag || !answer.ok || answer.headers.get("etag") !== read.tag) return readAnswer(answer);
    answer.body?.cancel().catch(() => {});
    return read;
  });
  fresh.catch(() => {});  // who takes it has to say so, and that may be later
  const known = device();
  // Without HTTPS there is no worker, and no cache either.
  const kept = known && globalThis.caches
    ?.match(address, { cacheName: keptOf(known.id), ignoreVary: true })
    .then((answer) => (answer ? readAnswer(answer) : null))
    .then((answer) => (read = answer))
    .catch(() => null);
  return { id, fresh, kept: kept ?? Promise.resolve(null) };
}

/** @param {Response} answer @returns {Promise<Answer>} */
export async function readAnswer(answer) {
  const told = answer.ok ? await answer.json() : await answer.json().catch(() => ({}));
  return { status: answer.status, tag: answer.headers.get("etag"), told };
}
