// This device's session, and every request in its name: see `web.devices`.
//
// It has two halves. The cookie is sent to whatever serves this host, at each of its ports, so it is
// worth nothing without this one, which pages of this origin alone can read. It is in the local
// storage because that is there at once: the first request waits for nothing, and the other tabs are
// told when it changes.

const KEY = "acphold device";

/** @typedef {{id: string, name: string, user: string | null, server: string, scopes: string[]}} Whose  as `GET /browser` tells it */

/** @typedef {Whose & {page: string}} Device */

/** This device, null while it is not paired. @returns {Device | null} */
export function device() {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? "null");
  } catch {
    return null;  // a browser that keeps nothing for pages
  }
}

/** @param {Device} told */
export const remember = (told) => localStorage.setItem(KEY, JSON.stringify(told));

/** Have something done when another tab has signed out, or was paired anew, since this was the device. @param {Device | null} known @param {() => void} what */
export function whenChanged(known, what) {
  const look = () => device()?.page !== known?.page && what();
  // A page that was frozen is told nothing of what has changed meanwhile.
  for (const sign of ["storage", "pageshow", "focus"]) addEventListener(sign, look);
  look();
}

/** Whose the sessions are. @param {Whose} of */
export const owner = ({ user, server }) => user ?? server;

/** Who said something: what names no user was said by whoever runs the server. @param {string | null | undefined} user */
export function sayer(user) {
  const known = device();
  return (user || null) === (known?.user ?? null) ? "You" : user || (known?.server ?? "");
}

/** Ask the server for something, as this device. @param {string | URL} path @param {RequestInit} [how] */
export function request(path, how) {
  const headers = new Headers(how?.headers);
  const known = device();
  if (known) headers.set("Acphold-Page", known.page);
  // What earlier releases called immutable may have been forgotten since.
  return fetch(path, { cache: "no-cache", ...how, headers });
}

/** The same for a WebSocket, which takes no headers: its subprotocols. */
export function subprotocols() {
  const known = device();
  return known ? ["acphold", `acphold-page.${known.page}`] : ["acphold"];
}

/** Where the service worker keeps what this device has read; `of` is its id. @param {string} of */
export const kept = (of) => `read ${of}`;
