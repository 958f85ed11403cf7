// What somebody has written and the server may not have: kept on this device until it has.
//
// A prompt is kept before it is sent, under an id of ours, by which the server takes it only once
// however often it comes (docs/protocol.md, "Going on after a lost connection").

const NAME = "acphold";

/**
 * @typedef {object} Kept  a prompt that waits for its answer
 * @property {string} id
 * @property {string} sessionId
 * @property {Received[]} content
 * @property {number} at
 * @property {number | null} after  a position from before it, null until it was sent once
 * @property {{at?: number}} [later]  it is for the queue of the session, and begins not before that moment
 * @property {boolean} [isReturned]  it was stopped before it began, and is to be written on
 */

/** @returns {Promise<IDBDatabase>} */
function opened() {
  return new Promise((resolve, reject) => {
    const asking = indexedDB.open(NAME, 1);
    asking.onupgradeneeded = () => {
      asking.result.createObjectStore("prompts", { keyPath: "id" });
      asking.result.createObjectStore("drafts");
    };
    asking.onsuccess = () => resolve(asking.result);
    asking.onerror = () => reject(asking.error);
  });
}

/** @type {Promise<IDBDatabase> | undefined} */
let database;

/** @template T @param {"prompts" | "drafts"} store @param {IDBTransactionMode} mode @param {(store: IDBObjectStore) => IDBRequest<T>} what @returns {Promise<T>} */
async function run(store, mode, what) {
  const transaction = (await (database ??= opened())).transaction(store, mode);
  const asking = what(transaction.objectStore(store));
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve(asking.result);
    transaction.onabort = () => reject(transaction.error);
  });
}

/** @param {Kept} kept */
export const keep = (kept) => run("prompts", "readwrite", (store) => store.put(kept));

/** @param {string} id */
export const forget = (id) => run("prompts", "readwrite", (store) => store.delete(id));

/** In the order in which they were written. @returns {Promise<Kept[]>} */
export const kept = async () => (await run("prompts", "readonly", (store) => store.getAll())).sort((a, b) => a.at - b.at);

/** @param {string} sessionId @param {string} text */
export const keepDraft = (sessionId, text) =>
  run("drafts", "readwrite", (store) => /** @type {IDBRequest<unknown>} */ (text ? store.put(text, sessionId) : store.delete(sessionId)));

/** @param {string} sessionId @returns {Promise<string | undefined>} */
export const draft = (sessionId) => run("drafts", "readonly", (store) => store.get(sessionId));

/** Throw all of it away. */
export const forgetAll = () => Promise.all([run("prompts", "readwrite", (store) => store.clear()), run("drafts", "readwrite", (store) => store.clear())]);

/**
 * Do something with a prompt that no other page of this browser does at the same time: who comes
 * later waits until the one before is done with it, or is closed.
 * @template T @param {string} id @param {() => Promise<T>} what @returns {Promise<T>}
 */
export const alone = (id, what) => (navigator.locks ? navigator.locks.request(`prompt ${id}`, what) : what());

/** `randomUUID` is there in secure contexts alone. */
export const newId = () =>
  Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(36)).join("");
