// Keeps the page itself, which is taken from here until another worker brings a newer one; pages of
// the journal that are settled, which never change; and, for when there is no network, the list and
// the end of each session as they were seen last (the page shows that end until it has a fresh one).
//
// What is read is kept by the session of this browser that asks for it, which its header names, and is
// shown to no other. Once that is over, it is thrown away: when the server does not know it any more,
// at a sign-out, and when somebody pairs this device anew.
import { kept as keptOf } from "../wire/device.js";

const worker = /** @type {ServiceWorkerGlobalScope} */ (/** @type {unknown} */ (self));
const PAGE = `page ${BUILD}`;
/** What is kept of what was read; a file is for whoever has asked for it. */
const READ = /^\/(sessions|sessions\/(?!feed$)[^/]+(\/entries)?)$/;
const FILES = ["/", MAIN, COLOURS, LATER, "/manifest.webmanifest", "/page/icon-192.png"];

/** Pages of the journal that are kept; beyond them the oldest go. */
const MOST = 600;

/** What is kept and thrown away happens one after the other: what is thrown away stays so. @type {Promise<unknown>} */
let last = Promise.resolve();
/** @template T @param {() => Promise<T>} what @returns {Promise<T>} */
function inOrder(what) {
  const done = last.then(what);
  last = done.catch(() => {});
  return done;
}

worker.addEventListener("install", (event) => {
  // A browser that can takes them from there itself, and does not start the worker for them first.
  const routes = FILES.map((pathname) => ({ condition: { urlPattern: { pathname } }, source: { cacheName: PAGE } }));
  /** @type {{addRoutes?: (routes: object[]) => Promise<void>}} */ (event).addRoutes?.(routes).catch(() => {});
  event.waitUntil(caches.open(PAGE).then((cache) => cache.addAll(FILES)).then(() => worker.skipWaiting()));
});

worker.addEventListener("activate", (event) => {
  event.waitUntil(
    caches.keys()
      .then((names) => Promise.all(names.filter((name) => name.startsWith("page ") && name !== PAGE).map((name) => caches.delete(name))))
      .then(() => worker.clients.claim()),
  );
});

worker.addEventListener("fetch", (event) => {
  const { request } = event;
  const { origin, pathname } = new URL(request.url);
  if (request.method !== "GET" || origin !== location.origin) return;
  const of = (request.headers.get("acphold-page") ?? "").split("_")[1];
  if (FILES.includes(pathname)) event.respondWith(keptFirst(request));
  else if (of && READ.test(pathname)) event.respondWith(read(request, of, (work) => event.waitUntil(work)));
});

/** Sessions of this browser that are over: what still comes for one is not kept. @type {Set<string>} */
const over = new Set();

worker.addEventListener("message", (event) => {
  if (!("forget" in event.data)) return;
  over.add(event.data.forget);
  event.waitUntil(inOrder(forgetAll).then(() => event.ports[0]?.postMessage("forgotten")));
});

async function forgetAll() {
  const names = (await caches.keys()).filter((name) => name.startsWith("read"));
  await Promise.all(names.map((name) => caches.delete(name)));
}

/** @param {Request} request */
const keptFirst = async (request) => (await caches.match(request, { cacheName: PAGE })) ?? fetch(request);

/** @param {Request} request @param {string} of @param {(work: Promise<void>) => void} goOn */
async function read(request, of, goOn) {
  const known = await caches.match(request.url, { cacheName: keptOf(of), ignoreVary: true });
  let answer;
  try {
    answer = await fetch(request);
  } catch (error) {
    if (known && request.cache !== "no-store") return known;
    throw error;
  }
  if (answer.status === 401) await inOrder(() => caches.delete(keptOf(of)));
  if (!answer.ok || answer.headers.get("cache-control")?.includes("no-store")) return answer;
  const copy = answer.clone();
  // Whoever asked does not wait for the disk.
  goOn(inOrder(() => keep(request.url, of, copy)).catch(() => {}));  // a full one: then it is not kept
  return answer;
}

/** @param {string} address @param {string} of @param {Response} answer */
async function keep(address, of, answer) {
  if (over.has(of)) return;
  const cache = await caches.open(keptOf(of));
  await cache.put(address, answer);
  const keys = await cache.keys();
  await Promise.all(keys.slice(0, Math.max(0, keys.length - MOST)).map((key) => cache.delete(key)));
}
