// That this device is somebody else's from now on, or nobody's.
import { kept, owner, remember, request } from "../wire/device.js";
import { pair } from "../wire/pages.js";
import * as sends from "./sends.js";

/** How long the server, and the service worker, are waited for. */
const LATE_MS = 5000;

/** @typedef {import("../wire/device.js").Device | null} Known */

/** Pair this device, in the place of what it was until now. @param {string} code @param {string} name @param {Known} before */
export async function pairAnew(code, name, before) {
  const now = await pair(code, name);
  await forget(before, before !== null && owner(before) === owner(now));
  remember(now);
}

/** End the session at the server, with its cookie; rejects where that is not reached. */
export const endSession = () => request("/browser", { method: "DELETE", signal: AbortSignal.timeout(LATE_MS) });

/**
 * Forget all that was read and kept here. What somebody has written stays where the `same` one goes
 * on: it was not sent yet.
 * @param {Known} before @param {boolean} [same]
 */
export async function forget(before, same = false) {
  localStorage.clear();
  sessionStorage.clear();
  if (!same) await sends.forgetAll().catch(() => {});  // a private window keeps nothing
  if ("serviceWorker" in navigator) await forgetWorker(before?.id ?? "").catch(() => {});
  await navigator.clearAppBadge?.().catch(() => {});
}

/** @param {string} id */
async function forgetWorker(id) {
  const registration = await navigator.serviceWorker.getRegistration();
  const worker = registration?.active;
  if (worker) {
    // It is told, so that what is just being read is not kept behind our back.
    const { port1, port2 } = new MessageChannel();
    const done = new Promise((resolve) => ((port1.onmessage = resolve), setTimeout(resolve, LATE_MS)));
    worker.postMessage({ forget: id }, [port2]);
    await done;
  }
  for (const name of await caches.keys()) if (name.startsWith(kept(""))) await caches.delete(name);
  await (await registration?.pushManager?.getSubscription())?.unsubscribe();
  for (const each of (await registration?.getNotifications()) ?? []) each.close();
}
