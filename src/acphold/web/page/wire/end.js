// The end of a session, which is what is shown of it first.
import { drawn } from "../model/frames.js";
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

/** `isFirst` while nothing of it is shown. @param {string} id @param {boolean} isFirst @returns {Asked} */
export function ask(id, isFirst) {
  const address = `/sessions/${id}/entries?limit=${ENTRIES}&brief=true`;
  const known = device();
  // Without HTTPS there is no worker, and no cache either.
  const kept = Promise.resolve(known && globalThis.caches?.match(address, { cacheName: keptOf(known.id), ignoreVary: true }))
    .then((answer) => (answer ? readAnswer(answer) : null))
    .catch(() => null);
  // What was kept is shown first: a request is work, and keeps it waiting.
  const asked = isFirst ? kept.then((read) => read && drawn()).then(() => request(address)) : request(address);
  const fresh = asked.then(async (answer) => {
    // What is the same as what was kept is not read twice.
    const read = await kept;
    if (!read?.tag || !answer.ok || answer.headers.get("etag") !== read.tag) return readAnswer(answer);
    answer.body?.cancel().catch(() => {});
    return read;
  });
  fresh.catch(() => {});  // who takes it has to say so, and that may be later
  return { id, kept, fresh };
}

/** @param {Response} answer @returns {Promise<Answer>} */
export async function readAnswer(answer) {
  const told = answer.ok ? await answer.json() : await answer.json().catch(() => ({}));
  return { status: answer.status, tag: answer.headers.get("etag"), told };
}
