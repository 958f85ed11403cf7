// What waits, and the sessions: by project, or what a search has found.
import { useEffect, useState } from "preact/hooks";
import { search, sessions } from "../wire/pages.js";
import { byProject, standing } from "../model/rows.js";
import { called, counted } from "../model/text.js";
import { ago } from "../model/times.js";
import { html } from "./html.js";
import { Inbox } from "./inbox.js";
import { Later } from "./later.js";
import { sessionPlace } from "./places.js";
import { RowView } from "./rows.js";
import { Whose } from "./whose.js";

const FILTERS = /** @type {[string, string][]} */ ([["", "All"], ["live", "Live"], ["running", "Running"], ["waiting", "Waiting"], ["unseen", "Done since you looked"]]);

/** Sessions of a project that are shown before somebody asks for more. */
const FIRST = 6;

/** `isAll` while nothing else is open. @param {{desk: import("../model/desk.js").Desk, current: string, isAll: boolean}} props */
export function Home({ desk, current, isAll }) {
  const [filter, setFilter] = useState("");
  const [words, setWords] = useState("");
  const rows = desk.listed.value;
  /** @param {import("../wire/pages.js").Row} row */
  const fits = (row) => !filter || (filter === "live" ? row.live !== null : standing(row)[0] === filter);
  const sought = words.trim().toLowerCase();
  /** @param {import("../wire/pages.js").Row} row */
  const isNamed = (row) => `${row.title} ${row.agent} ${row.cwd}`.toLowerCase().includes(sought);
  const others = useRows(sought, filter === "archived");
  const listed = rows.filter((row) => fits(row) && (!sought || isNamed(row)));
  const shown = filter === "archived" ? others : [...listed, ...others.filter((row) => !desk.rows.value.has(row.sessionId))];
  const mark = html`<a class="mark" href="#/"><span aria-hidden="true"></span>acphold</a>`;
  return html`<${isAll ? "main" : "nav"} class="home" id=${isAll ? "main" : undefined} tabindex="-1" aria-label="Sessions">
    <header class="bar">${isAll ? html`<h1>${mark}</h1>` : mark}
      <a class="button" href="#/usage">Usage</a><a class="button main" href="#/new">New</a></header>
    <div class="scroll">
      <${Whose} server=${desk.server} />
      <${Inbox} desk=${desk} current=${current} />
      <search><input type="search" placeholder="Search all conversations" aria-label="Search sessions and conversations" value=${words} onInput=${(/** @type {On<HTMLInputElement>} */ event) => setWords(event.target.value)} /></search>
      <div class="filters" role="group" aria-label="Which sessions">${FILTERS.map(([name, title]) => {
        const number = name ? rows.filter((row) => (name === "live" ? row.live !== null : standing(row)[0] === name)).length : rows.length;
        return (!name || number > 0) && html`<button type="button" aria-pressed=${filter === name} onClick=${() => setFilter(name)}>${title} <span>${number}</span></button>`;
      })}<button type="button" aria-pressed=${filter === "archived"} onClick=${() => setFilter("archived")}>Archived</button></div>
      ${byProject(shown).map((group) => html`<${Project} key=${group.cwd} group=${group} current=${current} isAll=${Boolean(sought || filter)} />`)}
      ${sought.length > 1 && html`<${Hits} words=${words} />`}
      ${desk.isListed.value && rows.length === 0 && html`<p class="empty">No sessions yet. <a href="#/new">Begin one</a>, or start an agent in your editor.</p>`}
      <p class="foot"><a href="#/decisions">Decided</a> · <a href="/page/licences.txt">Licences</a></p>
      ${!desk.isListed.value && html`<p class="empty aside">Loading sessions…</p>`}
      ${isAll && html`<${Later} name="Notices" />`}
    </div>
  <//>`;
}

/** Sessions that the feed does not have: those that are old and have the words, or are archived. @param {string} words @param {boolean} isArchived */
function useRows(words, isArchived) {
  const [found, setFound] = useState(/** @type {import("../wire/pages.js").Row[]} */ ([]));
  useEffect(() => {
    setFound([]);
    if (!words && !isArchived) return undefined;
    let isWanted = true;
    const pause = setTimeout(() => {
      const query = isArchived ? { q: words, archived: "only", limit: 200 } : { q: words };
      sessions(query).then((told) => isWanted && setFound(told.sessions), () => {});  // what is here already is shown
    }, 150);
    return () => (clearTimeout(pause), void (isWanted = false));
  }, [words, isArchived]);
  return found;
}

/** @param {{group: ReturnType<typeof byProject>[0], current: string, isAll: boolean}} props */
function Project({ group, current, isAll }) {
  const [isOpen, setOpen] = useState(false);
  const rows = isAll || isOpen ? group.rows : group.rows.slice(0, FIRST);
  const rest = group.rows.length - rows.length;
  return html`<section class="project">
    <h2 title=${group.cwd}>${group.name}</h2>
    <ul>${rows.map((row) => html`<${RowView} key=${row.sessionId} row=${row} isCurrent=${row.sessionId === current} />`)}</ul>
    ${rest > 0 && html`<button type="button" class="quiet" onClick=${() => setOpen(true)}>${counted(rest, "more session")}</button>`}
  </section>`;
}

/** What was said that has the words; each hit leads to its place. @param {{words: string}} props */
function Hits({ words }) {
  const [hits, setHits] = useState(/** @type {import("../wire/pages.js").Hit[] | null} */ (null));
  const [problem, setProblem] = useState("");
  useEffect(() => {
    const over = new AbortController();
    const pause = setTimeout(() => {
      search({ q: words }, over.signal).then(
        (found) => (setHits(found.hits), setProblem("")),
        (error) => over.signal.aborted || setProblem(error.message),
      );
    }, 200);
    return () => (clearTimeout(pause), over.abort());
  }, [words]);
  return html`<section class="hits" aria-live="polite"><h2>Said</h2>
    ${problem ? html`<p class="empty">${problem}</p>` : hits === null ? html`<p class="empty aside">Searching…</p>` : hits.length === 0 ? html`<p class="empty">Nothing found.</p>` : ""}
    <ul>${(hits ?? []).map((hit) => html`<li key=${`${hit.sessionId}@${hit.seq}`}><a class="session" href=${sessionPlace(hit.sessionId, hit.seq)}>
      <span class="excerpt">${marked(hit)}</span>
      <span class="about"><span>${called(hit.title)}</span><time datetime=${hit.at}>${ago(hit.at)}</time></span></a></li>`)}</ul>
  </section>`;
}

/** @param {import("../wire/pages.js").Hit} hit */
function marked({ excerpt, marks }) {
  const parts = [];
  // Places are in characters, and what a browser counts is UTF-16.
  const characters = [...excerpt];
  let at = 0;
  for (const [begin, end] of marks) {
    parts.push(characters.slice(at, begin).join(""), html`<mark>${characters.slice(begin, end).join("")}</mark>`);
    at = end;
  }
  return [...parts, characters.slice(at).join("")];
}
