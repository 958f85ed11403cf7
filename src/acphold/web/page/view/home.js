// What waits, and the sessions by project; below them, what a search has found.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { sessions } from "../wire/pages.js";
import { grouping, standing } from "../model/rows.js";
import { CUT } from "../model/tables.js";
import { agentName, counted, line, shortPath } from "../model/text.js";
import { panes, useWide } from "./columns.js";
import { device } from "../wire/device.js";
import { html } from "./html.js";
import { Later, loaded } from "./later.js";
import { memo } from "./memo.js";
import { sessionPlace } from "./places.js";
import { RowView } from "./rows.js";

/** As few and as short as stand in one row; those that are archived are further below. */
const FILTERS = /** @type {[string, string][]} */ ([["", "All"], ["live", "Active"], ["waiting", "Waiting"], ["unseen", "Unseen"], ["archived", "Archived"], ["program", "By programs"]]);

const PROGRAMS = "Written by scripts and other programs, or short and often with the same words in one folder. A name, a pin or a tag makes one yours.";

/** What the list says of times is right to a minute. */
const MINUTE = 60_000;

/** Sessions of a project that are shown before somebody asks for more. */
const FIRST = 8;

/** The address of the row that has the keyboard, "" where none has it. */
const held = () => (document.activeElement?.matches(".home a.session") ? (document.activeElement.getAttribute("href") ?? "") : "");

/** A row that moves keeps the keyboard: a browser takes it from whatever is put elsewhere. Called while the list is drawn. */
function useHeld() {
  const was = held();
  useLayoutEffect(() => {
    if (!was || document.activeElement !== document.body) return;
    const rows = /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(".home a.session"));
    [...rows].find((each) => each.getAttribute("href") === was)?.focus({ preventScroll: true });
  });
}

/** `isAll` while nothing else is open; the questions of the session `asking` stand beside it. @param {{desk: import("../model/desk.js").Desk, current: string, asking: string, isAll: boolean}} props */
export function Home({ desk, current, asking, isAll }) {
  useHeld();
  useEffect(() => document.querySelector(".home a.session[aria-current]")?.scrollIntoView({ block: "nearest" }), [current]);
  const [filter, setFilter] = useState("");
  const [only, setOnly] = useState(/** @type {string[]} */ ([]));
  const [byProject] = useState(grouping);
  const isArchive = filter === "archived";
  const chosen = desk.chosen.value;
  const now = Math.floor(Date.now() / MINUTE) * MINUTE;
  const words = desk.sought.value;
  const isBroad = useWide(panes);
  const isBesideNews = isBroad && isAll;
  const all = desk.listed.value;
  const rows = all.filter((row) => isOf(row, only));
  const isOfPrograms = rows.every((row) => row.byProgram);
  /** @param {import("../wire/pages.js").Row} row @param {string} [name] */
  const fits = (row, name = filter) => (name === "program" ? row.byProgram : name ? (name === "live" ? row.live !== null : standing(row)[0].startsWith(name)) : !row.byProgram || isOfPrograms || row.sessionId === current || standing(row)[0] === "waiting");
  const sought = words.trim().toLowerCase();
  /** @param {import("../wire/pages.js").Row} row */
  const isNamed = (row) => sought.split(/\s+/).every((word) => `${row.title} ${row.said ?? ""} ${row.agentName} ${row.cwd} ${(row.tags ?? []).map((each) => `#${each}`).join(" ")}`.toLowerCase().includes(word));
  const others = useRows(sought, isArchive, desk.server.isOnline, desk.tellings.value);
  const told = desk.rows.value;
  // What the feed tells of a session is newer than what was read of it.
  const listed = isArchive ? [...told.values()].filter((row) => row.archived && isNamed(row)) : rows.filter((row) => (sought && !filter ? isNamed(row) : fits(row) && (!sought || isNamed(row))));
  const found = others.rows.filter((row) => !told.has(row.sessionId) && !desk.gone.value.has(row.sessionId));
  const shown = [...listed, ...found].filter((row) => !desk.hidden.value.has(row.sessionId) && isOf(row, only));
  // Below the list, which it would move: it is known a moment later.
  const offer = !sought && !filter && html`<${Later} name="Found" isOnline=${desk.server.isOnline} />`;
  const titled = sought ? shown.map((row) => row.sessionId).join(" ") : "";
  useLayoutEffect(() => void (desk.titled.value = new Set(titled.split(" "))), [titled]);
  const projects = byProject(shown);
  const listedRows = useRef(/** @type {import("../wire/pages.js").Row[]} */ ([]));
  listedRows.current = projects.flatMap((group) => group.places.map(({ row }) => row));
  const [choose] = useState(() => (/** @type {import("../wire/pages.js").Row} */ row, /** @type {boolean} */ isRange) => desk.choose(row, isRange ? listedRows.current : undefined));
  /** What can be done with those that are chosen is another thing in the archive. @param {string} name */
  const turn = (name) => {
    if (chosen && isArchive !== (name === "archived")) desk.chosen.value = new Map();
    setFilter(name);
  };
  const archived = () => {
    turn("archived");
    document.querySelector(".filters")?.scrollIntoView({ block: "center" });
  };
  /** Escape clears what is typed, then leaves. @param {KeyboardEvent & On<HTMLInputElement>} event */
  const onKey = (event) => {
    if (event.key !== "Escape" || event.isComposing) return;
    event.preventDefault();
    if (words) desk.sought.value = "";
    else event.target.blur();
  };
  // What waits stands above the list: the list comes with it, and not before, to move away under a finger.
  const isEarly = !isBesideNews && desk.inbox.value.length > 0 && !loaded.value;
  const mark = html`<a class="mark" href="#/"><span aria-hidden="true"></span>acphold</a>`;
  // One element, as another one would begin at the top again.
  return html`<div role=${isAll ? "main" : "navigation"} class="home" id=${isAll ? "main" : undefined} tabindex="-1" aria-label="Sessions">
    <div class="bar">${isAll ? html`<h1>${mark}</h1>` : mark}
      ${!device()?.user && html`<a class="button" href="#/usage">Usage</a>`}<a class="button main" href="#/new">New</a></div>
    <div class="scroll">
      ${!isBesideNews && html`<${Later} name="Inbox" desk=${desk} current=${asking} isBrief=${isBroad} />`}${isEarly ? null : html`
      <search><input type="search" placeholder="Search all conversations" aria-label="Search sessions and conversations" value=${words} onInput=${(/** @type {On<HTMLInputElement>} */ event) => (desk.sought.value = event.target.value)} onKeyDown=${onKey} /><kbd aria-hidden="true">/</kbd></search>
      <div class="tools"><div class="filters" role="group" aria-label="Filter">${FILTERS.map(([name, title]) => {
        const number = rows.filter((row) => (sought ? isNamed(row) && (!name || fits(row, name)) : fits(row, name))).length;
        return (!name || filter === name || (number > 0 && !isArchive)) && html`<button type="button" aria-pressed=${filter === name} title=${name === "program" ? PROGRAMS : undefined} onClick=${() => turn(filter === name ? "" : name)}>${title}${number > 0 && html` <span>${number}${!name && desk.isCut.value ? "+" : ""}</span>`}</button>`;
      })}</div>
      ${Math.max(all.length, shown.length) > 1 && html`<div class="picks"><${Only} rows=${all} only=${only} pick=${(/** @type {string} */ kind) => setOnly([...only, kind])} /><button type="button" class="quiet" aria-pressed=${chosen !== null} onClick=${() => (desk.chosen.value = chosen ? null : new Map())}>Select</button></div>`}</div>
      ${only.length > 0 && html`<div class="filters only" role="group" aria-label="Only">${only.map((each) => html`<button type="button" key=${each} aria-label=${`Not only ${kindName(each)}`} onClick=${() => setOnly(only.filter((other) => other !== each))}>${kindName(each)} <span aria-hidden="true">×</span></button>`)}</div>`}
      ${filter === "program" && html`<p class="aside about-filter">${PROGRAMS} “All” leaves them out; a search finds them.</p>`}
      ${chosen && html`<${Later} name="Chosen" desk=${desk} isArchive=${isArchive} />`}
      ${desk.isListed.value && all.length === 0 && offer}
      ${projects.map((group) => html`<${Project} key=${group.cwd} group=${group} now=${now} current=${current} isAll=${Boolean(sought || filter || only.length > 0 || chosen)} chosen=${chosen} choose=${chosen ? choose : undefined} />`)}
      ${others.more && html`<button type="button" class="quiet" onClick=${others.more}>More sessions</button>`}
      ${others.problem && html`<p class="empty" role="alert">${others.problem} ${filter ? "Archived" : "Older"} sessions are not shown.</p>`}
      ${desk.isListed.value && others.isKnown && shown.length === 0 && html`<${Later} name="Empty" filter=${filter} hits=${sought.length > 1 ? desk.hits.value : 0} isSearch=${Boolean(sought)} isOnly=${only.length > 0} isBesideNews=${isBesideNews} />`}
      ${all.length > 0 && offer}
      ${sought.length > 1 && !isBesideNews && html`<${Later} name="Hits" desk=${desk} words=${words} />`}
      <${Later} name="Swipes" desk=${desk} />
      <${Later} name="Whose" server=${desk.server} />
      <p class="foot">${!isArchive && html`<button type="button" class="quiet" onClick=${archived}>Archived</button> · `}<a href="#/decisions">Decisions</a> · <a href="#/rules">Rules</a> · <a href="/page/licences.txt">Licences</a></p>
      ${!desk.isListed.value && html`<p class="empty aside">${desk.server.isOnline ? "Loading sessions…" : "Your sessions appear here when the server is reached."}</p>`}
      ${isAll && html`<${Later} name="Notices" />`}`}
    </div>
  </div>`;
}

/** @typedef {{rows: import("../wire/pages.js").Row[], isKnown?: boolean, problem?: string, more?: () => void}} Others  `more` reads on */

/** @type {Others} */
const NONE = { rows: [], isKnown: true };

/** Sessions that the feed may not have: those that are old and have the words, or are archived. They are read again with a new connection, and when all of the list is told anew. @param {string} q @param {boolean} isArchived @param {boolean} isOnline @param {number} tellings */
function useRows(q, isArchived, isOnline, tellings) {
  const [found, setFound] = useState(NONE);
  const asked = useRef("");
  useEffect(() => {
    const isAsked = isArchived || q !== "";
    const what = `${isArchived} ${q}`;
    if (!isAsked || asked.current !== what) setFound(isAsked ? { rows: [] } : NONE);
    asked.current = what;
    if (!isAsked) return undefined;
    let isWanted = true;
    /** @param {Others["rows"]} before @param {string} [cursor] */
    const ask = (before, cursor) =>
      sessions({ q, archived: isArchived ? "only" : undefined, cursor }).then(
        ({ sessions, nextCursor }) => {
          const rows = [...before, ...sessions];
          if (isWanted) setFound({ rows, isKnown: true, more: nextCursor ? () => void ask(rows, nextCursor) : undefined });
        },
        ({ message }) => isWanted && setFound({ rows: before, problem: message }),
      );
    const pause = setTimeout(ask, 150, []);
    return () => (clearTimeout(pause), void (isWanted = false));
  }, [q, isArchived, isOnline, tellings]);
  return found;
}

/** What a session is of, for the choice of some. @param {import("../wire/pages.js").Row} row */
const kindsOf = (row) => [`agent ${row.agentName}`, `folder ${row.project ?? row.cwd}`, ...(row.tags ?? []).map((each) => `tag ${each}`)];

/** Whether it is of one of the agents that were picked, if any were, and of one of the projects, and of one of the tags. @param {import("../wire/pages.js").Row} row @param {string[]} only */
function isOf(row, only) {
  const its = kindsOf(row);
  const [picked, met] = [only, only.filter((each) => its.includes(each))].map((them) => new Set(them.map((each) => each.split(" ", 1)[0])));
  return picked.size === met.size;
}

/** @param {string} each */
const kindName = (each) => {
  const name = each.slice(each.indexOf(" ") + 1);
  return each.startsWith("agent ") ? agentName(name) : each.startsWith("folder ") ? shortPath(name) : `#${line(name, CUT.short)}`;
};

/** Adds an agent, a project or a tag to those that are picked, where there are several. @param {{rows: import("../wire/pages.js").Row[], only: string[], pick: (kind: string) => void}} props */
function Only({ rows, only, pick }) {
  const kinds = [...new Set(rows.flatMap(kindsOf))].sort();
  /** @param {string} kind @param {string} label */
  const some = (kind, label) => {
    const its = kinds.filter((each) => each.startsWith(`${kind} `));
    const left = its.filter((each) => !only.includes(each));
    return its.length > (kind === "tag" ? 0 : 1) && left.length > 0 && html`<optgroup label=${label}>${left.map((each) => html`<option value=${each}>${kindName(each)}</option>`)}</optgroup>`;
  };
  const found = [some("agent", "Agent"), some("folder", "Project"), some("tag", "Tag")];
  return found.some(Boolean) && html`<select aria-label="Add a filter" value="" onChange=${(/** @type {On<HTMLInputElement>} */ event) => (pick(event.target.value), (event.target.value = ""))}><option value="">Filter…</option>${found}</select>`;
}

/** A project with its sessions, some of them until somebody asks for all. */
const Project = memo((/** @type {{group: import("../model/rows.js").Project, now: number, current: string, isAll: boolean, chosen: Map<string, unknown> | null, choose?: (row: import("../wire/pages.js").Row, isRange: boolean) => void}} */ { group, now, current, isAll, chosen, choose }) => {
  const [isOpen, setOpen] = useState(false);
  const number = group.places.length;
  const at = group.places.findLastIndex(({ row }) => row.sessionId === current || sessionPlace(row.sessionId) === held());
  const room = isAll || isOpen ? number : Math.max(FIRST, at + 1);
  const rest = number - room;
  return html`<section class="project">
    <h2 title=${group.cwd}>${group.name}</h2>
    <ul>${group.places.slice(0, room).map((each) => html`<${RowView} key=${each.row.sessionId} ...${each} now=${now} isCurrent=${each.row.sessionId === current} isChosen=${chosen?.has(each.row.sessionId)} choose=${choose} />`)}</ul>
    ${rest > 0 && html`<button type="button" class="quiet" onClick=${() => setOpen(true)}>${counted(rest, "more session")}</button>`}
  </section>`;
});
