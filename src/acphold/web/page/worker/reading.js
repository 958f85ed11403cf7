// Keeps what was read, for when there is no network: the page itself, pages of the journal that are
// settled (they never change, and are taken from here first), the list and the end of each session
// as they were seen last.
//
// What is kept belongs to who is paired: once the server does not know this device any more, it is
// thrown away.

const worker = /** @type {ServiceWorkerGlobalScope} */ (/** @type {unknown} */ (self));
const PAGE = `page ${BUILD}`;
const READ = "read";
const FILES = ["/", COLOURS, LATER, "/manifest.webmanifest", "/page/icon.svg"];

/** Pages of the journal that are kept; beyond them the oldest go. */
const MOST = 600;

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
  if (FILES.includes(pathname)) event.respondWith(freshFirst(request, PAGE));
  else if (pathname === "/inbox" || pathname.startsWith("/sessions")) event.respondWith(read(request));
});

/** @param {Request} request */
async function read(request) {
  const known = await caches.match(request, { cacheName: READ });
  if (known?.headers.get("cache-control")?.includes("immutable")) return known;
  return freshFirst(request, READ);
}

/** @param {Request} request @param {string} name */
async function freshFirst(request, name) {
  let answer;
  try {
    answer = await fetch(request);
  } catch (error) {
    const known = await caches.match(request, { cacheName: name });
    if (known) return known;
    throw error;
  }
  if (answer.status === 401) await caches.delete(READ);
  if (answer.ok) {
    const cache = await caches.open(name);
    await cache.put(request, answer.clone()).catch(() => {});  // a full disk: then it is not kept
    if (name === READ) {
      const keys = await cache.keys();
      await Promise.all(keys.slice(0, Math.max(0, keys.length - MOST)).map((key) => cache.delete(key)));
    }
  }
  return answer;
}
