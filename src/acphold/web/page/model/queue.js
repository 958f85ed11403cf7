// The queue of a session as its process tells of it: whole, and then what has changed since.

/** @typedef {import("./session.js").Queue} Queue */

/**
 * The queue after a change: its members as they are now, null where there is none any more; of its
 * lists what leaves, and then what is inserted where. See acphold.record.history.prompt_queue.
 * @param {Queue} queue @param {Received} delta @returns {Queue}
 */
export function changedQueue(queue, { waiting, ended, ...members }) {
  /** @type {Received} */
  const changed = { ...queue, ...members };
  if (waiting) changed.waiting = edited(queue.waiting, waiting);
  if (ended) changed.ended = edited(queue.ended, ended);
  return changed;
}

/** @param {{id: string}[] | undefined} list @param {{gone?: string[], put?: [number, {id: string}][]}} edits */
function edited(list, { gone = [], put = [] }) {
  const rest = (list ?? []).filter(({ id }) => !gone.includes(id));
  for (const [at, each] of put) rest.splice(at, 0, each);
  return rest;
}
