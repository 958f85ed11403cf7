// The owner of the sessions on this page, and "Sign out".
import { useState } from "preact/hooks";
import { line } from "../model/text.js";
import { device, owner } from "../wire/device.js";
import { html } from "./html.js";
import { signOut } from "./sign_in.js";

/** @param {{server: import("../wire/server.js").Server}} props */
export function Whose({ server }) {
  const [isBusy, setBusy] = useState(false);
  void server.link.value;  // a new connection reads the device again
  const known = device();
  if (!known) return null;
  const leave = () => {
    setBusy(true);
    signOut(known).catch(() => {}).finally(() => setBusy(false));
  };
  return html`<p class="whose"><span><b>${line(owner(known), 60)}</b> · ${line(known.name, 60)}</span>
    <button type="button" class="quiet" disabled=${isBusy} onClick=${leave}>Sign out</button></p>`;
}
