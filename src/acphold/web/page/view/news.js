// Beside the list while nothing is open: what happened since somebody last looked, and a new session; or what a search has found.
import { useEffect, useState } from "preact/hooks";
import { news } from "../model/news.js";
import { CUT } from "../model/tables.js";
import { agentName, baseName, called, counted, line } from "../model/text.js";
import { ago, exactly } from "../model/times.js";
import { device } from "../wire/device.js";
import { read } from "../wire/pages.js";
import { Hits } from "./hits.js";
import { html } from "./html.js";
import { NewForm } from "./new_session.js";
import { sessionPlace } from "./places.js";
import { State } from "./rows.js";

/** @typedef {{sessionId: string, words: string, problem: string | null, files: number, isAll: boolean}} Glance */

/** How long sessions rest before they are looked at again. */
const PAUSE_MS = 1000;

/** @param {{desk: import("../model/desk.js").Desk}} props */
export function News({ desk }) {
  const sought = desk.sought.value.trim();
  const rows = news(desk.listed.value);
  const glances = useGlances(sought.length > 1 ? [] : rows);
  if (sought.length > 1) return html`<${Hits} desk=${desk} words=${sought} isRoomy />`;
  if (!desk.isListed.value) return null;
  if (desk.listed.value.length === 0) return html`<${Beginning} />`;
  return html`${rows.length > 0 && html`<section><h2>Since you last looked</h2>
    <ul>${rows.map((row) => html`<${GlanceView} key=${row.sessionId} row=${row} glance=${glances.get(row.sessionId)} />`)}</ul></section>`}
    ${mayBegin() && html`<section class="new"><h2>New session</h2><${NewForm} desk=${desk} /></section>`}`;
}

/** Whether this device may start a session. */
const mayBegin = () => Boolean(device()?.scopes.includes("prompt"));

/** How these sessions ended; kept while it is read anew. @param {import("../wire/pages.js").Row[]} rows */
function useGlances(rows) {
  const [found, setFound] = useState(/** @type {Map<string, Glance>} */ (new Map()));
  const wanted = JSON.stringify(rows.map((row) => row.sessionId));
  const state = rows.map((row) => row.updatedAt + row.live?.state).join();
  useEffect(() => {
    let isWanted = true;
    if (rows.length === 0) return undefined;
    const over = new AbortController();
    // While turns run they change all the time. What is without them is shown all the same.
    const pause = setTimeout(
      () => read("/glances", { sessions: wanted }, { signal: over.signal }).then(
        ({ glances }) => isWanted && setFound(new Map(glances.map((/** @type {Glance} */ each) => [each.sessionId, each]))),
        () => {},
      ),
      found.size > 0 ? PAUSE_MS : 0,
    );
    return () => (clearTimeout(pause), over.abort(), void (isWanted = false));
  }, [wanted, state]);
  return found;
}

/** @param {{row: import("../wire/pages.js").Row, glance?: Glance}} props */
function GlanceView({ row, glance }) {
  const { words = "", problem = null, files = 0, isAll = true } = glance ?? {};
  return html`<li class="glance">
    <h3><a href=${sessionPlace(row.sessionId)}>${called(row.title)}</a></h3>
    <p class="about"><${State} row=${row} /><span>${agentName(row.agentName)} · <span title=${row.cwd}>${baseName(row.cwd)}</span></span><time datetime=${row.updatedAt} title=${exactly(row.updatedAt)}>${ago(row.updatedAt)}</time></p>
    ${problem && html`<p class="bad">${line(problem, CUT.words)}</p>`}
    ${words && html`<p class="last">${line(words, CUT.words)}</p>`}
    ${files > 0 && html`<p><a href=${`#/changes/${encodeURIComponent(row.sessionId)}@1`}>${counted(files, "file")}${isAll ? "" : " or more"} changed</a></p>`}
  </li>`;
}

function Beginning() {
  return html`<section><h2>Start here</h2>
    <ul class="ways">
      <li><a href="#/new">Start a session</a> with an agent on this server.</li>
      <li>Run <code>acphold setup</code> on the server. Your editor’s sessions then appear here too.</li>
      <li>Run <code>acphold import</code> on the server to import your agents’ earlier conversations.</li>
    </ul></section>`;
}
