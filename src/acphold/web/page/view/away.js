// Says when the page is offline, and since when: what it shows may be old then.
import { useEffect, useState } from "preact/hooks";
import { lasting, moment } from "../model/times.js";
import { html } from "./html.js";

/** How long a connection may take to be made before anybody is told. */
const UNNOTICED_MS = 1200;

/** @param {{server: import("../wire/server.js").Server}} props */
export function Away({ server }) {
  const link = server.link.value;
  const [, setNow] = useState(0);
  const isHere = link.state === "here";
  useEffect(() => {
    if (isHere) return undefined;
    const ticking = setInterval(() => setNow(Date.now()), 1000);
    const first = setTimeout(() => setNow(Date.now()), UNNOTICED_MS);
    return () => (clearInterval(ticking), clearTimeout(first));
  }, [isHere, link.since]);
  if (isHere || link.state === "stranger" || Date.now() - link.since < UNNOTICED_MS) return null;
  return html`<div class="away-bar" role="status">
    <span>Offline since ${moment(link.since)} (${lasting(link.since)}). What you see is from then.</span>
    <button type="button" onClick=${() => server.connectNow()}>Try now</button>
  </div>`;
}
