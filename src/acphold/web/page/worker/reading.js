// Keeps the page itself, which is taken from here until another worker brings a newer one; pages of
// the journal that are settled, which never change; and, for when there is no network, the list and
// the end of each session as they were seen last (the page shows that end until it has a fresh one).
//
// What is kept belongs to who is paired: once the server does not know this device any more, it is
// thrown away.

const worker = /** @type {ServiceWorkerGlobalScope} */ (/** @type {unknown} */ (self));
const PAGE = `page ${BUILD}`;
const READ = "read";
const FILES = ["/", COLOURS, LATER, "/manifest.webmanifest", "/page/icon.svg"];

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
  if (request.method !== "GET" || origin !== location.origin || pathname === "/sessions/feed") return;
  if (FILES.includes(pathname)) event.respondWith(keptFirst(request));
  else if (pathname === "/inbox" || pathname.startsWith("/sessions")) event.respondWith(read(request, (work) => event.waitUntil(work)));
});

/** @param {Request} request */
const keptFirst = async (request) => (await caches.match(request, { cacheName: PAGE })) ?? fetch(request);

/** @param {Request} request @param {(work: Promise<void>) => void} goOn */
async function read(request, goOn) {
  const known = await caches.match(request, { cacheName: READ });
  if (known?.headers.get("cache-control")?.includes("immutable")) return known;
  let answer;
  try {
    answer = await fetch(request);
  } catch (error) {
    if (known && request.cache !== "no-store") return known;
    throw error;
  }
  if (answer.status === 401) await inOrder(() => caches.delete(READ));
  const copy = answer.clone();
  // Whoever asked does not wait for the disk.
  if (answer.ok) goOn(inOrder(() => keep(request, copy)).catch(() => {}));  // a full one: then it is not kept
  return answer;
}

/** @param {Request} request @param {Response} answer */
async function keep(request, answer) {
  const cache = await caches.open(READ);
  await cache.put(request, answer);
  const keys = await cache.keys();
  await Promise.all(keys.slice(0, Math.max(0, keys.length - MOST)).map((key) => cache.delete(key)));
}
