// The owner of the sessions on this page, and "Sign out".
import { useState } from "preact/hooks";
import { CUT } from "../model/tables.js";
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
  return html`<p class="whose"><span><b>${line(owner(known), CUT.name)}</b> · ${line(known.name, CUT.name)}</span>
    <button type="button" class="quiet" disabled=${isBusy} onClick=${leave}>Sign out</button></p>`;
}
