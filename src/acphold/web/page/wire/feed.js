// The list of sessions as it changes: an event stream (HTML, 9.2.6), read by hand.
//
// An EventSource hides the comments that come every 15 seconds, and so whether anything comes at
// all. And it is closed while nobody looks: over HTTP/1.1 a browser has six connections for all of
// its tabs together.

import { device, request } from "./device.js";

const SILENT_MS = 40_000;
/** Between two beginnings at least: what was cut off late is read on at once. */
const AGAIN_MS = 2000;

/**
 * @typedef {object} Listener
 * @property {(rows: import("./pages.js").Row[], isCut: boolean) => void} snapshot
 * @property {(change: {session?: import("./pages.js").Row, gone?: string}) => void} change
 */

export class Feed {
  #listener;
  #last = "";
  #again = 0;
  /** @type {AbortController | null} */
  #reading = null;

  /** @param {Listener} listener */
  constructor(listener) {
    this.#listener = listener;
  }

  /** Read on, where it is not read and somebody looks. */
  start() {
    clearTimeout(this.#again);
    if (this.#reading || document.hidden || !device()) return;
    const began = performance.now();
    const reading = (this.#reading = new AbortController());
    this.#read(reading)
      .catch(() => {})  // whether the server is there is said by who has the socket
      .finally(() => {
        if (this.#reading !== reading) return;
        this.#reading = null;
        this.#again = setTimeout(() => this.start(), began + AGAIN_MS - performance.now());
      });
  }

  stop() {
    clearTimeout(this.#again);
    this.#reading?.abort();
    this.#reading = null;
  }

  /** @param {AbortController} reading */
  async #read(reading) {
    let silent = setTimeout(() => reading.abort(), SILENT_MS);
    try {
      const headers = this.#last ? { "Last-Event-ID": this.#last } : undefined;
      const answer = await request("/sessions/feed", { headers, signal: reading.signal });
      if (answer.status === 401) this.stop();  // until this device is paired: each try is written down there
      if (!answer.ok || !answer.body) return;
      const bytes = answer.body.getReader();
      const decoder = new TextDecoder();
      let rest = "";
      for (;;) {
        const { done, value } = await bytes.read();
        if (done) return;
        clearTimeout(silent);
        silent = setTimeout(() => reading.abort(), SILENT_MS);
        const events = (rest + decoder.decode(value, { stream: true })).split("\n\n");
        rest = events.pop() ?? "";
        events.forEach((event) => this.#take(event));
      }
    } finally {
      clearTimeout(silent);
    }
  }

  /** @param {string} event */
  #take(event) {
    /** @type {Record<string, string>} */
    const fields = {};
    for (const line of event.split("\n")) {
      const colon = line.indexOf(": ");
      if (colon > 0) fields[line.slice(0, colon)] = line.slice(colon + 2);
    }
    if (!fields.data) return;
    const data = JSON.parse(fields.data);
    this.#last = fields.id ?? "";
    if (fields.event === "snapshot") this.#listener.snapshot(data.sessions, Boolean(data.more));
    else this.#listener.change(data);
  }
}
