// The texts that a search has found, by session.
import { useEffect, useRef, useState } from "preact/hooks";
import { sayer } from "../wire/device.js";
import { read, search } from "../wire/pages.js";
import { CUT, SPEAKERS } from "../model/tables.js";
import { agentName, baseName, called, counted, line } from "../model/text.js";
import { ago, exactly } from "../model/times.js";
import { html } from "./html.js";
import { sessionPlace } from "./places.js";

/** @typedef {import("../wire/pages.js").Hit} Hit */
/** @typedef {{speaker: string, user: string | null, text: string} | null} Message */
/** @typedef {{place: string, excerpt: string, marks: [number, number][], before: Message, after: Message}} Context  see `web.reports` */

/** Hits of a session that are shown before somebody asks for more. */
const FIRST = 3;

/** Hits that are shown with what was said before and after them, where there is room. */
const IN_CONTEXT = 20;

/** `isRoomy` where there is more room than in the list; what was not found without a connection is sought again with one. @param {{desk: import("../model/desk.js").Desk, words: string, isRoomy?: boolean}} props */
export function Hits({ desk, words, isRoomy = false }) {
  const { state } = desk.server.link.value;
  const [hits, setHits] = useState(/** @type {Hit[] | null} */ (null));
  useEffect(() => void (desk.hits.value = hits && hits.length), [hits]);
  useEffect(() => () => void (desk.hits.value = null), []);
  const [cursor, setCursor] = useState("");
  const [problem, setProblem] = useState("");
  const asking = useRef(new AbortController());
  const known = useRef("");
  /** @param {AbortSignal} signal @param {string} [from] */
  const find = (signal, from) =>
    search({ q: words, cursor: from }, signal).then(
      (found) => ((known.current = words), setHits((was) => [...(from ? (was ?? []) : []), ...found.hits]), setCursor(found.nextCursor ?? ""), setProblem("")),
      (error) => signal.aborted || setProblem(error.message),
    );
  // The list tells of a new title, with which other hits may be found.
  const told = (hits ?? []).map((hit) => ({ ...hit, title: (desk.rows.value.get(hit.sessionId) ?? hit).title }));
  const renamed = told.filter(({ title }, at) => title !== hits?.[at].title).map(({ sessionId, title }) => `${sessionId} ${title}`).join("\n");
  useEffect(() => {
    if (known.current === words && !renamed) return undefined;
    const over = (asking.current = new AbortController());
    const pause = setTimeout(() => find(over.signal), 200);
    return () => (clearTimeout(pause), over.abort());
  }, [words, state === "online", renamed]);
  const all = bySession(told);
  const titled = desk.titled.value;
  const groups = all.map((group) => group.filter((hit) => !titled.has(hit.sessionId) || saysMore(hit))).filter((group) => group.length > 0);
  const [contexts, setContexts] = useState(/** @type {Map<string, Context>} */ (new Map()));
  useEffect(() => {
    const places = groups.flatMap((group) => group.slice(0, FIRST)).map((hit) => hit.place).slice(0, IN_CONTEXT);
    if (!isRoomy || places.length === 0) return undefined;
    let isWanted = true;
    read("/contexts", { q: words, places: JSON.stringify(places) }).then(
      (found) => isWanted && setContexts(new Map(found.contexts.map((/** @type {Context} */ each) => [each.place, each]))),
      () => {},  // the hits are there without them
    );
    return () => void (isWanted = false);
  }, [hits, isRoomy]);
  const isMissing = problem !== "" || hits === null;
  const status = isMissing && state === "offline" ? "The server cannot be reached. Messages are searched there, once it is back."
    : problem || (hits === null ? "Searching…" : hits.length === 0 ? "No messages match. Try fewer or shorter words." : groups.length === 0 ? "Found only in titles." : "");
  return html`<section class="hits" aria-labelledby="said" aria-busy=${known.current !== words && !problem && state !== "offline"}><h2 id="said">Messages</h2>
    <p class="empty aside" role="status">${status || leftOut(all)}</p>
    ${groups.map((group) => html`<${Found} key=${group[0].sessionId} hits=${group} contexts=${contexts} isArchived=${desk.rows.value.get(group[0].sessionId)?.archived ?? group[0].archived} />`)}
    ${cursor && html`<button type="button" class="quiet" onClick=${() => find(asking.current.signal, cursor)}>More results</button>`}
  </section>`;
}

/** The words that were left out, because no conversation has all. @param {Hit[][]} groups */
function leftOut(groups) {
  const hits = groups.flat();
  if (!hits.some((hit) => hit.missing?.length)) return "";
  const { nowhere = [], missing = [] } = hits[0];
  const isAlike = hits.every((hit) => String(hit.missing) === String(missing));
  const found = counted(groups.length, "conversation");
  /** @param {string[]} words */
  const named = (words) => words.map((word) => `“${line(word, CUT.short)}”`).join(" or ");
  if (nowhere.length === 0) return `No conversation has all of these words; ${isAlike ? `${found} without ${named(missing)}` : "the best first"}.`;
  const others = isAlike && missing.length === nowhere.length ? `${found} with the others` : "those with most of the others, the best first";
  return `Nothing has ${named(nowhere)}; ${others}.`;
}

/** Whether a hit says more than the title of its session: most are the first prompt. @param {Hit} hit */
function saysMore({ speaker, excerpt, marks, title }) {
  const [words, name] = [excerpt, called(title).replace(/…$/, "")].map((text) => text.toLowerCase().match(/[\p{L}\p{N}]+/gu)?.join(" ") ?? "");
  return marks.length > 0 && !(speaker === "user" && words.includes(name));
}

/** By session, in the order of each one's first hit. @param {Hit[]} hits @returns {Hit[][]} */
function bySession(hits) {
  /** @type {Map<string, Hit[]>} */
  const groups = new Map();
  for (const hit of hits) groups.set(hit.sessionId, [...(groups.get(hit.sessionId) ?? []), hit]);
  return [...groups.values()];
}

/** A session and its hits; each leads to its place. @param {{hits: Hit[], contexts: Map<string, Context>, isArchived: boolean}} props */
function Found({ hits, contexts, isArchived }) {
  const [isOpen, setOpen] = useState(false);
  const [{ sessionId, title, agentName: agent, cwd, at }] = hits;
  const shown = isOpen ? hits : hits.slice(0, FIRST);
  return html`<section class="of-session">
    <h3><a href=${sessionPlace(sessionId)}>${called(title)}</a></h3>
    <p class="about"><span>${isArchived && "archived · "}${agentName(agent)} · <span title=${cwd}>${baseName(cwd)}</span></span><time datetime=${at} title=${exactly(at)}>${ago(at)}</time></p>
    <ul>${shown.map((hit) => html`<li key=${hit.seq}><a class="session" href=${sessionPlace(sessionId, hit.seq)}><${Excerpt} hit=${hit} context=${contexts.get(hit.place)} /></a></li>`)}</ul>
    ${shown.length < hits.length && html`<button type="button" class="quiet" onClick=${() => setOpen(true)}>${counted(hits.length - shown.length, "more result")}</button>`}
  </section>`;
}

/** @param {{hit: Hit, context?: Context}} props */
function Excerpt({ hit, context }) {
  if (!context) return html`<span class="excerpt">${marked(hit)}</span>`;
  return html`<${Around} message=${context.before} /><span class="excerpt">${marked(context)}</span><${Around} message=${context.after} />`;
}

/** @param {{message: Message}} props */
const Around = ({ message }) =>
  message && html`<span class="around"><b>${message.speaker === "user" ? line(sayer(message.user), CUT.name) : (SPEAKERS[message.speaker] ?? "Other")}:</b> ${line(message.text, CUT.words)}</span>`;

/** @param {{excerpt: string, marks: [number, number][]}} found */
function marked({ excerpt, marks }) {
  const parts = [];
  // Places are in characters, and what a browser counts is UTF-16.
  const characters = [...excerpt];
  let at = 0;
  for (const [begin, end] of marks) {
    parts.push(characters.slice(at, begin).join(""), html`<mark>${characters.slice(begin, end).join("")}</mark>`);
    at = end;
  }
  // Without the marks of Markdown: here they are none.
  return [...parts, characters.slice(at).join("")].map((part) => (typeof part === "string" ? part.replace(/\*\*|`/g, "") : part));
}
