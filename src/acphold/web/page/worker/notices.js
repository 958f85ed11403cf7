// Notices that are pushed to this device: see `web.notices`. All that waits is one notice, which the
// next one takes the place of; so is the end of a turn in one session. Each opens what it is about. That
// of one question can also have the page that it opens reject it, and answers nothing by itself: this
// script has no access. Each push shows something: Safari ends the subscription of a page that does not.

export {};

const worker = /** @type {ServiceWorkerGlobalScope} */ (/** @type {unknown} */ (self));
const TAG = "acphold-waiting";
const REJECT = "reject";

/** How often, and for how long, a page that is being opened is told what a person has rejected. */
const [AGAIN_MS, TIMES] = [500, 60];

/** @typedef {{count: number, done?: boolean, title?: string, body?: string, isNews?: boolean, sessionId?: string, seq?: number, reject?: string}} Told  `reject` is the id of a question that may be rejected */

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
async function show({ count, done, title, body, isNews, sessionId, seq, reject }) {
  const place = sessionId ? `#/session/${encodeURIComponent(sessionId)}${seq ? `@${seq}` : ""}` : "#/";
  const isQuiet = isNews === false || (!done && count === 0);
  await worker.registration.showNotification(
    title || "acphold",
    /** @type {NotificationOptions & {renotify: boolean, actions: {action: string, title: string}[]}} */ ({
      body: body || "A question is waiting for you.",
      tag: done ? `acphold-done ${sessionId}` : TAG,
      renotify: !isQuiet,
      silent: isQuiet,
      icon: "/page/icon-192.png",
      badge: "/page/icon-192.png",
      actions: reject ? [{ action: REJECT, title: "Reject" }] : [],
      data: { place, reject },
    }),
  );
  if (!done) await badge(count);
}

/** @param {number} count */
const badge = (count) => worker.navigator.setAppBadge?.(count).catch(() => {});

worker.addEventListener("notificationclick", (event) => {
  event.notification.close();
  const { place = "#/", reject } = event.notification.data ?? {};
  event.waitUntil(open(place, event.action === REJECT ? reject : undefined));
});

/** @param {string} place @param {string} [reject] */
async function open(place, reject) {
  const told = { place, reject };
  for (const client of await worker.clients.matchAll({ type: "window", includeUncontrolled: true })) {
    if (new URL(client.url).pathname !== "/") continue;  // an export, or a file of ours
    // A page that is there goes to it by itself: loading it anew would lose what is typed in it.
    const heard = tell(client, told);
    await client.focus().catch(() => {});
    await heard;
    return;
  }
  const opened = await worker.clients.openWindow(new URL(`/${place}`, location.origin).href);
  if (opened && reject) await tell(opened, told);
}

/** Tell a page until it has heard it: one that is being opened does not listen yet. @param {WindowClient} client @param {{place: string, reject?: string}} told */
async function tell(client, told) {
  for (let times = 0; times < (told.reject ? TIMES : 1); times++) {
    const { port1, port2 } = new MessageChannel();
    const isHeard = new Promise((resolve) => (port1.onmessage = () => resolve(true)));
    client.postMessage(told, [port2]);
    if (await Promise.race([isHeard, new Promise((resolve) => setTimeout(resolve, AGAIN_MS))])) return;
  }
}
