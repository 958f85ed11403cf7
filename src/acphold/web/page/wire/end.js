// The end of a session, which is what is shown of it first.

/** Entries that are more than a screen, mostly; what is before them follows when somebody goes up. */
const ENTRIES = 40;

/**
 * @typedef {object} Asked
 * @property {string} id  as it stands in an address
 * @property {Promise<Response | undefined>} kept  as the service worker kept it when it was read last
 * @property {Promise<Response>} fresh  as it is now
 */

/** @param {string} id @returns {Asked} */
export function ask(id) {
  const address = `/sessions/${id}/entries?limit=${ENTRIES}`;
  const fresh = fetch(address);
  fresh.catch(() => {});  // who takes it has to say so, and that may be later
  // Without HTTPS there is no worker, and no cache either.
  const kept = globalThis.caches?.match(address, { cacheName: "read" }).catch(() => undefined);
  return { id, fresh, kept: kept ?? Promise.resolve(undefined) };
}
