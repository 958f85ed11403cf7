// How a device is paired that is not: by the code in the address, or one that is typed.
import { useState } from "preact/hooks";
import { endSession, forget, pairAnew } from "../model/leaving.js";
import { line } from "../model/text.js";
import { device, owner, request } from "../wire/device.js";
import { html } from "./html.js";
import { codeIn } from "./places.js";

/** Exchange a code for a session of this browser, in the place of one that it has. @param {string} code */
const pairWith = (code) => pairAnew(code, deviceName(), device());

/**
 * Pair by a code that was in the address. A page of anybody may lead to such an address, so a device
 * that is somebody's already asks them.
 * @param {string} code
 */
export async function pairByAddress(code) {
  const known = device();
  const isSomebodys = known !== null && (await request("/browser").then((answer) => answer.ok, () => false));
  if (isSomebodys && !confirm(`This page is of ${line(owner(known), 60)}. The address has a code that pairs it anew, maybe as somebody else's. Do that?`)) return;
  await pairWith(code);
}

/** Leave nothing of anybody's on this device. @param {import("../wire/device.js").Device} known */
export async function signOut(known) {
  if (!confirm(`Sign out of ${line(owner(known), 60)}? What is kept on this device is thrown away, with what you have written and not sent.`)) return;
  const isEnded = await endSession().then((answer) => answer.ok, () => false);
  if (!isEnded && !confirm(`The server is not reached. Forget everything here all the same? The session itself is then ended with: acphold token revoke ${known.id}`)) return;
  await forget(known);
  location.replace("/");
  location.reload();  // where that was the address already
}

/** What this device is called in the list of those that may come. */
function deviceName() {
  const agent = navigator.userAgent;
  const machine = [["iPhone", "iPhone"], ["iPad", "iPad"], ["Android", "Android"], ["Mac OS", "Mac"], ["Windows", "Windows"], ["CrOS", "Chromebook"], ["Linux", "Linux"]];
  const browser = [["Edg/", "Edge"], ["Firefox", "Firefox"], ["CriOS", "Chrome"], ["Chrome", "Chrome"], ["Safari", "Safari"]];
  /** @param {string[][]} list */
  const found = (list) => list.find(([sign]) => agent.includes(sign))?.[1];
  return [found(browser), found(machine)].filter(Boolean).join(" on ") || "a browser";
}

/** @param {{problem: string}} props */
export function SignIn({ problem }) {
  const [code, setCode] = useState("");
  const [told, setTold] = useState(problem);
  const [isBusy, setBusy] = useState(false);
  /** @param {Event} event */
  const send = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await pairWith(codeIn(new URL(code, "http://x").hash) || code.trim());
      location.reload();  // nothing of who was here before stays in memory
    } catch (error) {
      setTold(String(/** @type {Error} */ (error).message));
    } finally {
      setBusy(false);
    }
  };
  return html`<main class="sign-in" id="main">
    <span class="emblem" aria-hidden="true"></span>
    <h1>Pair this device</h1>
    <p><code>acphold serve</code> prints an address with a code in it, and so does <code>acphold token pair</code>. Open that address here, scan its picture, or type the code.</p>
    <form onSubmit=${send}>
      <label>Code<input value=${code} autocapitalize="characters" autocomplete="one-time-code" spellcheck=${false} required onInput=${(/** @type {On<HTMLInputElement>} */ event) => setCode(event.target.value)} /></label>
      <button type="submit" class="main" disabled=${isBusy || !code.trim()}>Pair</button>
    </form>
    ${told && html`<p class="bad" role="alert">${told}</p>`}
  </main>`;
}
