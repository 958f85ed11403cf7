// Reports that somebody is at this page and needs no notice: see `web.notices`. What was pushed before
// is taken away where they see it.
import { request } from "../wire/device.js";

const REPORT_EVERY_MS = 20_000;
const ATTENDED_MS = 60_000;
const WAITING = "acphold-waiting";

/** A lost request does no harm: then the notice is sent. @param {string} method @param {string} [body] */
const send = (method, body) => request("/notices/attended", { method, body, keepalive: true }).catch(() => {});

/** Report that the page is visible, and when it got input a moment ago and has the focus. @param {() => boolean} isAnswered  nothing waits for a person */
export function attend(isAnswered) {
  let touchedAt = 0;
  let reportedAt = 0;
  let visibleAt = 0;
  const report = () => {
    const now = Date.now();
    if (touchedAt > now) touchedAt = 0;  // the clock was set back: nothing is known
    if (reportedAt > now) reportedAt = 0;
    if (visibleAt > now) visibleAt = 0;
    const isTouched = document.hasFocus() && touchedAt > reportedAt && now <= touchedAt + ATTENDED_MS && now >= reportedAt + REPORT_EVERY_MS;
    const isSeen = isNotified() && now >= visibleAt + REPORT_EVERY_MS;
    if (document.hidden || !(isTouched || isSeen)) return;
    visibleAt = now;
    if (isTouched) reportedAt = now;
    send("POST", JSON.stringify(isTouched ? { secondsAgo: (now - touchedAt) / 1000 } : {}));
  };
  const left = () => {
    if (reportedAt || visibleAt) send("DELETE");
    reportedAt = visibleAt = 0;
  };
  for (const name of ["pointerdown", "keydown", "wheel", "touchstart"]) {
    addEventListener(name, () => ((touchedAt = Date.now()), report()), { passive: true, capture: true });
  }
  addEventListener("focus", report);
  addEventListener("blur", left);
  document.addEventListener("visibilitychange", () => (document.hidden ? left() : (report(), void takeAway(isAnswered()))));
  setInterval(() => (report(), void takeAway(isAnswered())), REPORT_EVERY_MS);
  report();
  void takeAway(false);
}

const isNotified = () => globalThis.Notification?.permission === "granted";

/** Whoever sees the page needs no notice that a turn is done, nor of what was answered. @param {boolean} isAnswered */
async function takeAway(isAnswered) {
  if (document.hidden || !isNotified()) return;
  const registration = await navigator.serviceWorker?.getRegistration();
  for (const each of (await registration?.getNotifications()) ?? []) if (isAnswered || each.tag !== WAITING) each.close();
  if (isAnswered) await navigator.setAppBadge?.(0).catch(() => {});
}
