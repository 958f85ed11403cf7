// That somebody is here, who needs no notice: see `web.notices`.
import { request } from "../wire/device.js";

const TOLD_EVERY_MS = 20_000;
const THERE_MS = 60_000;

/** What does not arrive harms nobody: then the notice comes. @param {string} method @param {string} [body] */
const tell = (method, body) => request("/notices/attended", { method, body, keepalive: true }).catch(() => {});

/** Say that somebody is here while they are: the page has the focus, and got input a moment ago. */
export function attend() {
  let touched = 0;
  let said = 0;
  const say = () => {
    const now = Date.now();
    if (touched > now) touched = 0;  // the clock was set back: nothing is known
    if (said > now) said = 0;
    if (!document.hasFocus() || touched <= said || now > touched + THERE_MS || now < said + TOLD_EVERY_MS) return;
    said = now;
    tell("POST", JSON.stringify({ secondsAgo: (now - touched) / 1000 }));
  };
  const left = () => {
    if (said) tell("DELETE");
    said = 0;
  };
  for (const name of ["pointerdown", "keydown", "wheel", "touchstart"]) {
    addEventListener(name, () => ((touched = Date.now()), say()), { passive: true, capture: true });
  }
  addEventListener("focus", say);
  addEventListener("blur", left);
  document.addEventListener("visibilitychange", () => document.hidden && left());
  setInterval(say, TOLD_EVERY_MS);
  navigator.serviceWorker?.addEventListener("message", ({ data }) => {
    if (typeof data?.place === "string" && data.place.startsWith("#/")) location.hash = data.place;
  });
}
