// Notices on this device: whether they are on.
import { request } from "../wire/device.js";
import { read } from "../wire/pages.js";

/**
 * Why there can be none here, as a person would put it; or whether they are on.
 * @typedef {"on" | "off" | "denied" | "insecure" | "home screen" | "unable"} Standing
 */

/** @param {string} method @param {string} path @param {object} [content] */
async function send(method, path, content) {
  const answer = await request(path, {
    method,
    headers: { "Content-Type": "application/json" },
    body: content && JSON.stringify(content),
  });
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).error ?? `HTTP ${answer.status}`);
}

/** Whether they are on. @returns {Promise<Standing>} */
export async function noticesState() {
  if (!isSecureContext) return "insecure";
  if (!("serviceWorker" in navigator)) return "unable";
  // Safari on a phone has it for pages on the home screen alone.
  if (!("PushManager" in window)) return "standalone" in navigator ? "home screen" : "unable";
  if (Notification.permission === "denied") return "denied";
  const registration = await navigator.serviceWorker.getRegistration();
  const [known, answer] = await Promise.all([registration?.pushManager.getSubscription(), read("/notices")]);
  return known && answer.isOn ? "on" : "off";
}

/** The wishes of this device: last words on its lock screen, and the sessions whose turn it waits for. @returns {Promise<{words: boolean, sessions: string[]}>} */
export const wishes = () => read("/notices");

/** @param {{words: boolean} | {sessionId: string, tell: boolean}} wish */
export const wish = (wish) => send("POST", "/notices/wishes", wish);

/** Have this device told; called by a tap, as a browser asks for leave only then. @returns {Promise<Standing>} */
export async function turnOn() {
  if ((await Notification.requestPermission()) !== "granted") return "denied";
  const registration = await navigator.serviceWorker.ready;
  const { key } = await read("/notices");
  await (await registration.pushManager.getSubscription())?.unsubscribe();  // it may be for an earlier key
  const found = await registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key });
  const { endpoint, keys } = found.toJSON();
  await send("POST", "/notices", { endpoint, keys });
  return "on";
}

/** @returns {Promise<Standing>} */
export async function turnOff() {
  const registration = await navigator.serviceWorker.getRegistration();
  await (await registration?.pushManager.getSubscription())?.unsubscribe();
  await send("DELETE", "/notices");
  return "off";
}
