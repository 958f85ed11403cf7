// The page: what waits and the sessions on one side, what is open on the other; on a narrow screen
// one of the two.
import { useEffect, useState } from "preact/hooks";
import { wordTable } from "../model/text.js";
import { Away } from "./away.js";
import { Conversation } from "./conversation.js";
import { Guard } from "./guard.js";
import { Home } from "./home.js";
import { panes, useWide } from "./columns.js";
import { html } from "./html.js";
import { Later } from "./later.js";
import { place } from "./places.js";

const LATER_VIEWS = wordTable({ changes: "Changes", new: "NewSession", usage: "Usage", decisions: "Decisions", rules: "Rules" });

/** @param {{desk: import("../model/desk.js").Desk, problem: string}} props */
export function App({ desk, problem }) {
  const { name, id, seq } = place.value;
  const isOpen = name === "session" || name in LATER_VIEWS;
  const waiting = desk.inbox.value.length;
  const isBroad = useWide(panes);
  // What is open is drawn first: the list is beside it, or is not seen at all.
  const [isListed, setListed] = useState(!isOpen);
  useEffect(() => setListed(true), []);
  useEffect(() => {
    if (name !== "session") document.title = waiting ? `(${waiting}) acphold` : "acphold";
    navigator.setAppBadge?.(waiting).catch(() => {});
  }, [name, waiting]);
  const { state, why } = desk.server.link.value;
  if (state === "unpaired") return html`<${Later} name="SignIn" problem=${problem || why} />`;
  return html`<a class="skip" href="#main" onClick=${(/** @type {Event} */ event) => (event.preventDefault(), document.getElementById("main")?.focus())}>Skip to the main content</a>
    <${Away} server=${desk.server} />
    <div class="undo" role="status">${desk.notices.value.length > 0 && html`<${Later} name="Undo" desk=${desk} />`}</div>
    <div class=${`panes ${isOpen ? "has-open" : ""}`}>
      ${isListed ? html`<${Home} desk=${desk} current=${id} asking=${name === "session" ? id : ""} isAll=${!isOpen} />` : html`<nav class="home" aria-label="Sessions"></nav>`}
      ${name === "session"
        ? html`<${Guard} key=${id}><${Conversation} desk=${desk} id=${id} seq=${seq} /><//>`
        : isOpen
          ? html`<${Later} key=${`${name} ${id} ${seq}`} name=${LATER_VIEWS[name]} desk=${desk} id=${id} seq=${seq} />`
          : isBroad && html`<aside class="plain news" aria-label="News"><${Later} name="Inbox" desk=${desk} /><${Later} name="News" desk=${desk} /></aside>`}
    </div>
    <${Later} name="Keys" desk=${desk} />`;
}
