// Notices that are pushed to this device: see `web.notices`. All that waits is one notice, which the
// next one takes the place of; so is the end of a turn in one session. Each opens what it is about, and
// answers nothing. Each push shows something: Safari ends the subscription of a page that does not.

export {};

const worker = /** @type {ServiceWorkerGlobalScope} */ (/** @type {unknown} */ (self));
const TAG = "acphold-waiting";

/** @typedef {{count: number, done?: boolean, title?: string, body?: string, isNews?: boolean, sessionId?: string, seq?: number}} Told */

worker.addEventListener("push", (event) => {
  /** @type {Told} */
  let told;
  try {
    told = event.data?.json() ?? { count: 1 };
  } catch {
    told = { count: 1 };  // something waits, whatever it was that came
  }
  event.waitUntil(show(told));
});

/** @param {Told} told */
async function show({ count, done, title, body, isNews, sessionId, seq }) {
  const place = sessionId ? `#/session/${encodeURIComponent(sessionId)}${seq ? `@${seq}` : ""}` : "#/";
  const isQuiet = isNews === false || (!done && count === 0);
  await worker.registration.showNotification(
    title || "acphold",
    /** @type {NotificationOptions & {renotify: boolean}} */ ({
      body: body || "A question is waiting for you.",
      tag: done ? `acphold-done ${sessionId}` : TAG,
      renotify: !isQuiet,
      silent: isQuiet,
      icon: "/page/icon-192.png",
      badge: "/page/icon-192.png",
      data: place,
    }),
  );
  if (!done) await badge(count);
}

/** @param {number} count */
const badge = (count) => worker.navigator.setAppBadge?.(count).catch(() => {});

worker.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(open(String(event.notification.data || "#/")));
});

/** @param {string} place */
async function open(place) {
  const address = new URL(`/${place}`, location.origin).href;
  for (const client of await worker.clients.matchAll({ type: "window", includeUncontrolled: true })) {
    if (new URL(client.url).pathname !== "/") continue;  // an export, or a file of ours
    // A page that is there goes to it by itself: loading it anew would lose what is typed in it.
    client.postMessage({ place });
    await client.focus().catch(() => {});
    return;
  }
  await worker.clients.openWindow(address);
}
