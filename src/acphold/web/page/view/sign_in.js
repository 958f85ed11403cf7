// Pairing of a device: by the code in the address, or one that is typed.
import { useState } from "preact/hooks";
import { endSession, forget, pairAnew } from "../model/leaving.js";
import { CUT } from "../model/tables.js";
import { line } from "../model/text.js";
import { device, owner, request } from "../wire/device.js";
import { coded } from "./coded.js";
import { asked } from "./dialog.js";
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
  if (isSomebodys) {
    const text = `This device is signed in as ${line(owner(known), CUT.name)}. The link that you opened can sign it in as somebody else.`;
    if ((await asked({ title: "Pair this device again?", text, action: "Pair again" })) === null) return;
  }
  await pairWith(code);
}

/** Leave nothing of anybody's on this device. @param {import("../wire/device.js").Device} known */
export async function signOut(known) {
  const text = "This deletes everything that the page keeps on this device, including messages that you have not sent.";
  if ((await asked({ title: `Sign out of ${line(owner(known), CUT.name)}?`, text, action: "Sign out", isBad: true })) === null) return;
  const isEnded = await endSession().then((answer) => answer.ok, () => false);
  if (!isEnded) {
    const text = `You can still delete everything on this device. To end its access too, run this on the server: acphold access revoke ${known.id}`;
    if ((await asked({ title: "The server cannot be reached", text, action: "Delete here", isBad: true })) === null) return;
  }
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
  const words = told && `${told[0].toUpperCase()}${told.slice(1).replace(/\.$/, "")}.`;
  return html`<main class="sign-in" id="main">
    <span class="emblem" aria-hidden="true"></span>
    <h1>Pair this device</h1>
    ${words && html`<p class="bad" role="alert">${coded(words)}</p>`}
    <p>Run <code>acphold access pair</code> on the server. Open the link that it prints, scan its QR code, or type its code here.</p>
    <form onSubmit=${send}>
      <label>Code<input value=${code} autocapitalize="characters" autocomplete="one-time-code" spellcheck=${false} required onInput=${(/** @type {On<HTMLInputElement>} */ event) => setCode(event.target.value)} /></label>
      <button type="submit" class="main" disabled=${isBusy || !code.trim()}>Pair</button>
    </form>
  </main>`;
}
