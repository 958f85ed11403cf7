// A bar while the page is offline: since when, as what it shows may be old.
import { useEffect, useState } from "preact/hooks";
import { lasting, moment } from "../model/times.js";
import { UNNOTICED_MS } from "../wire/server.js";
import { html } from "./html.js";

/** @param {{server: import("../wire/server.js").Server}} props */
export function Away({ server }) {
  const link = server.link.value;
  const [, setNow] = useState(0);
  const isOnline = link.state === "online";
  useEffect(() => {
    if (isOnline) return undefined;
    const ticking = setInterval(() => setNow(Date.now()), 1000);
    const first = setTimeout(() => setNow(Date.now()), UNNOTICED_MS);
    return () => (clearInterval(ticking), clearTimeout(first));
  }, [isOnline, link.since]);
  if (isOnline || link.state === "unpaired" || Date.now() - link.since < UNNOTICED_MS) return null;
  return html`<div class="away-bar" role="status">
    <span>Offline since ${moment(link.since)} (${lasting(link.since)})<span class="more">, reconnecting. This page may be out of date.</span></span>
    <button type="button" onClick=${() => server.connectNow()}>Reconnect now</button>
  </div>`;
}
