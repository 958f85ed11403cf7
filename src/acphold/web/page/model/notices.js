// Notices on this device: whether they are on, and that somebody is here, who needs none.
import { signal } from "@preact/signals";
import { read } from "../wire/pages.js";

/**
 * Why there can be none here, as a person would put it; or whether they are on.
 * @typedef {"unknown" | "on" | "off" | "denied" | "insecure" | "home screen" | "unable"} Standing
 */

/** @type {import("@preact/signals").Signal<Standing>} */
export const standing = signal("unknown");

const ATTENDED = "/notices/attended";
const TOLD_EVERY_MS = 20_000;
const THERE_MS = 60_000;

/** @param {string} method @param {string} path @param {object} [said] */
async function tell(method, path, said) {
  const answer = await fetch(path, {
    method,
    headers: { "Content-Type": "application/json" },
    body: said && JSON.stringify(said),
    keepalive: true,
  });
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).error ?? `HTTP ${answer.status}`);
}

/** Look whether they are on. */
export async function look() {
  if (!isSecureContext) standing.value = "insecure";
  else if (!("serviceWorker" in navigator)) standing.value = "unable";
  else if (!("PushManager" in window)) {
    // Safari on a phone has it for pages on the home screen alone.
    standing.value = "standalone" in navigator ? "home screen" : "unable";
  } else if (Notification.permission === "denied") standing.value = "denied";
  else {
    const registration = await navigator.serviceWorker.getRegistration();
    const [known, told] = await Promise.all([registration?.pushManager.getSubscription(), read("/notices")]);
    standing.value = known && told.isOn ? "on" : "off";
  }
}

/** Have this device told; called by a tap, as a browser asks for leave only then. */
export async function turnOn() {
  if ((await Notification.requestPermission()) !== "granted") {
    standing.value = "denied";
    return;
  }
  const registration = await navigator.serviceWorker.ready;
  const { key } = await read("/notices");
  await (await registration.pushManager.getSubscription())?.unsubscribe();  // it may be for an earlier key
  const found = await registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key });
  const { endpoint, keys } = found.toJSON();
  await tell("POST", "/notices", { endpoint, keys });
  standing.value = "on";
}

export async function turnOff() {
  const registration = await navigator.serviceWorker.getRegistration();
  await (await registration?.pushManager.getSubscription())?.unsubscribe();
  await tell("DELETE", "/notices");
  standing.value = "off";
}

/** Say that somebody is here while they are: the page has the focus, and got input a moment ago. What does not arrive harms nobody: then the notice comes. */
export function attend() {
  let touched = 0;
  let said = 0;
  const say = () => {
    const now = Date.now();
    if (touched > now) touched = 0;  // the clock was set back: nothing is known
    if (said > now) said = 0;
    if (!document.hasFocus() || touched <= said || now > touched + THERE_MS || now < said + TOLD_EVERY_MS) return;
    said = now;
    tell("POST", ATTENDED, { secondsAgo: (now - touched) / 1000 }).catch(() => {});
  };
  const left = () => {
    if (said) tell("DELETE", ATTENDED).catch(() => {});
    said = 0;
  };
  for (const name of ["pointerdown", "keydown", "wheel", "touchstart"]) {
    addEventListener(name, () => ((touched = Date.now()), say()), { passive: true, capture: true });
  }
  addEventListener("focus", say);
  addEventListener("blur", left);
  addEventListener("pagehide", left);
  document.addEventListener("visibilitychange", () => document.hidden && left());
  setInterval(say, TOLD_EVERY_MS);
  navigator.serviceWorker?.addEventListener("message", ({ data }) => {
    if (typeof data?.place === "string" && data.place.startsWith("#/")) location.hash = data.place;
  });
}
