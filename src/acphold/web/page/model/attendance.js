// Reports that somebody is at this page and needs no notice: see `web.notices`.
import { request } from "../wire/device.js";

const REPORT_EVERY_MS = 20_000;
const ATTENDED_MS = 60_000;

/** A lost request does no harm: then the notice is sent. @param {string} method @param {string} [body] */
const send = (method, body) => request("/notices/attended", { method, body, keepalive: true }).catch(() => {});

/** Report presence while the page has the focus and got input a moment ago. */
export function attend() {
  let touchedAt = 0;
  let reportedAt = 0;
  const report = () => {
    const now = Date.now();
    if (touchedAt > now) touchedAt = 0;  // the clock was set back: nothing is known
    if (reportedAt > now) reportedAt = 0;
    if (!document.hasFocus() || touchedAt <= reportedAt || now > touchedAt + ATTENDED_MS || now < reportedAt + REPORT_EVERY_MS) return;
    reportedAt = now;
    send("POST", JSON.stringify({ secondsAgo: (now - touchedAt) / 1000 }));
  };
  const left = () => {
    if (reportedAt) send("DELETE");
    reportedAt = 0;
  };
  for (const name of ["pointerdown", "keydown", "wheel", "touchstart"]) {
    addEventListener(name, () => ((touchedAt = Date.now()), report()), { passive: true, capture: true });
  }
  addEventListener("focus", report);
  addEventListener("blur", left);
  document.addEventListener("visibilitychange", () => document.hidden && left());
  setInterval(report, REPORT_EVERY_MS);
}
