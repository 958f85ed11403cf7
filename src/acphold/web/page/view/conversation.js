// A session: the conversation, at its end; its questions; the composer.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { CUT } from "../model/tables.js";
import { agentName, baseName, called, line } from "../model/text.js";
import { Composer } from "./composer.js";
import { Entries } from "./entries.js";
import { html } from "./html.js";
import { Later } from "./later.js";
import { whole } from "./places.js";
import { State } from "./rows.js";

/** For this long after input, scrolling counts as done by the person. */
const HAND_MS = 600;

/** Most pages to read, and screens to draw, in search of the prompt above. */
const FAR = 40;

/** After this long without updates, a turn whose end is not reported counts as over. */
const QUIET_MS = 1000;

/** Within so many pixels of the end a person counts as reading there. */
const NEAR = 120;

/** @param {{desk: import("../model/desk.js").Desk, id: string, seq: number}} props */
export function Conversation({ desk, id, seq }) {
  const [session, setSession] = useState(() => desk.session(id));
  // In the step that draws it: what comes right after that, or right after it is left, is news or not.
  useLayoutEffect(() => {
    setSession(desk.show(id));
    return () => desk.hideCurrent(id);
  }, [id]);
  const row = desk.rows.value.get(id) ?? session.row.value;
  const status = session.status.value;
  const title = status === "missing" ? "Session not found" : called(row?.title ?? session.timeline.state.title);
  useEffect(() => {
    document.title = `${title} · acphold`;
  }, [title]);
  const isRunning = row?.live?.state === "running" || row?.live?.state === "waiting" || session.sending.value.some((each) => each.state === "begun");
  const [isFinding, setFinding] = useState(false);
  const who = agentName(row?.agentName ?? session.introduction.value?.agentInfo?.title ?? "The agent");
  // Who can continue it is known once the list is there; on a page that began offline, not until then.
  const isKnown = useRef(false);
  isKnown.current ||= row !== undefined || desk.isListed.value || session.isAttached.value || session.server.link.value.state === "offline";
  const unserved = unservedAgent(session, row);
  const other = session.otherAgent.value ?? unserved;
  const back = html`<a class="back" href="#/" aria-label="All sessions"></a>`;
  if (status === "missing") {
    return html`<main class="conversation" id="main" tabindex="-1">
      <header class="bar">${back}<h1>${title}</h1></header>
      <p class="empty">It was deleted, or this device has no access to it.</p>
    </main>`;
  }
  return html`<main class="conversation" id="main" tabindex="-1">
    <header class="bar">
      ${back}
      <div class="name"><h1>${title}</h1><p><${State} row=${row} /> ${who} · <span title=${row?.cwd}>${baseName(row?.cwd ?? session.cwd)}</span></p></div>
      <button type="button" class="to-prompt" onClick=${() => toPrompt(session)} title="Previous prompt" aria-label="Previous prompt">↑</button>
      <${Later} name="SessionMenu" desk=${desk} id=${id} row=${row} title=${title} session=${session} find=${() => setFinding(true)} />
    </header>
    ${isFinding && html`<${Later} name="Find" session=${session} done=${() => setFinding(false)} />`}
    ${status === "failed" && html`<p class="empty">The session could not be loaded. ${line(session.problem.value)}</p>`}
    <${Reading} key=${id} session=${session} seq=${seq} isKnown=${row !== undefined} isRunning=${isRunning} />
    ${session.status.value === "ready" && html`<footer class="asking">
      <${Later} name="Questions" session=${session} waiting=${desk.inbox.value} who=${who} />
      <${Later} name="Waiting" desk=${desk} session=${session} />
      ${isRunning && html`<${Later} name="TellMe" session=${session} />`}
      ${session.problem.value && !row?.movedTo && html`<p class="bad" role="alert">${line(session.problem.value)}</p>`}
      ${other && html`<${Later} name="OtherAgent" desk=${desk} session=${session} other=${other} />`}
      ${row?.movedTo ? html`<p class="aside">This session was moved to ${line(row.movedTo, CUT.name)}. To work on it here, continue in a copy.</p>`
        : unserved || !isKnown.current ? null
        : session.permits("prompt") ? html`<${Composer} session=${session} isRunning=${isRunning} instead=${instead(session, desk.inbox.value)} paths=${() => pathsIn(session)} />` : html`<p class="aside">You can only watch this session.</p>`}
    </footer>`}
  </main>`;
}

/** Nobody can go on with what was imported from an agent that is not served, until another one is to: nothing is offered that would need it. @param {import("../model/session.js").Session} session @param {import("../wire/pages.js").Row | undefined} row */
function unservedAgent(session, row) {
  const served = session.server.agents.value;
  const isUnserved = row?.unstarted && !row.live && !row.movedTo && !session.isAttached.value && session.sending.value.length === 0 && served.length > 0 && !served.includes(row.agentName);
  return isUnserved && session.permits("prompt") ? { agent: row.agentName, served } : null;
}

/** What is written while an agent asks for permission is said in place of a yes. @param {import("../model/session.js").Session} session @param {import("../model/desk.js").Waiting[]} waiting */
function instead(session, waiting) {
  const asked = session.questions.value.find((each) => each.state !== "answering");
  const options = waiting.find((each) => each.id === asked?.id)?.shows?.options ?? [];
  const no = options.find((each) => each.kind === "reject_once") ?? options.find((each) => each.kind.startsWith("reject"));
  if (!asked || !no || !session.isAttached.value) return undefined;
  return { id: asked.id, reject: () => session.answer(asked, { outcome: { outcome: "selected", optionId: no.optionId } }) };
}

/** @param {{session: import("../model/session.js").Session, seq: number, isKnown: boolean, isRunning: boolean}} props */
function Reading({ session, seq, isKnown, isRunning }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const top = useRef(/** @type {HTMLDivElement | null} */ (null));
  const sheet = useRef(/** @type {HTMLDivElement | null} */ (null));
  const isAtEnd = session.isAtEnd.value;
  const moved = useRef(-HAND_MS);  // nobody has touched it yet, however young the page is
  const changes = session.changes.value;
  const before = session.before.value;
  const undrawn = session.undrawn.value;
  const { items } = session.timeline;
  // That a turn of another device was completed is told with the prompt behind it. Until then it is
  // over where the list has nothing running for as long as it takes to be told of a prompt.
  const [isQuiet, setQuiet] = useState(false);
  useEffect(() => {
    setQuiet(false);
    const quiet = setTimeout(() => setQuiet(true), QUIET_MS);
    return () => clearTimeout(quiet);
  }, [changes, isRunning]);
  const isOver = isQuiet && isKnown && !isRunning && !["end", "prompt", undefined].includes(items.at(-1)?.kind);
  const toEnd = () => session.timeline.items.length > 0 && box.current?.scrollTo({ top: box.current.scrollHeight });

  const [isLong, setLong] = useState(true);
  useLayoutEffect(() => void (session.isAtEnd.value = !seq), []);
  useLayoutEffect(() => {
    if (session.isAtEnd.value) toEnd();
  }, [changes, session.questions.value, isAtEnd]);
  // What is above is read, and drawn, before anybody gets there.
  useEffect(() => {
    if (!top.current || (before === null && undrawn === 0)) return undefined;
    const seen = new IntersectionObserver((found) => found.some((each) => each.isIntersecting) && void session.showEarlier(), {
      root: box.current,
      rootMargin: "1500px 0px 0px",
    });
    seen.observe(top.current);
    return () => seen.disconnect();
  }, [before, undrawn, session]);
  // What is above is measured when it is first seen, and the space for what is written below
  // changes: who reads the end still reads it.
  useEffect(() => {
    if (!box.current) return undefined;
    const watch = new ResizeObserver(() => {
      const { scrollHeight = 0, clientHeight = 0 } = box.current ?? {};
      setLong(scrollHeight > clientHeight);
      if (session.isAtEnd.value) toEnd();
    });
    watch.observe(box.current);
    if (sheet.current) watch.observe(sheet.current);
    return () => watch.disconnect();
  }, []);
  const sought = useRef(0);
  useEffect(() => {
    if (!seq || session.status.value !== "ready") return;
    // What was kept here is shown first, and then it is read anew; who has gone on meanwhile stays where they are.
    if (sought.current === seq && (moved.current > 0 || session.isAtEnd.value)) return;
    sought.current = seq;
    session.isAtEnd.value = false;
    void session.loadTo(seq).then(async () => {
      const hand = moved.current;
      let found, at;
      // What is above is drawn by and by, and measured when it is first near the screen: both move the place.
      do {
        await new Promise(requestAnimationFrame);
        found = show(seq);
        at = found?.offsetTop;
        if (sheet.current) await whole(sheet.current);
        for (let frames = 3; frames--; ) await new Promise(requestAnimationFrame);
      } while (moved.current === hand && !session.isAtEnd.value && at !== found?.offsetTop);
    });
  }, [seq, session.status.value, session.timeline]);

  const onScroll = () => {
    const { scrollTop = 0, scrollHeight = 0, clientHeight = 0 } = box.current ?? {};
    const isNear = scrollHeight - scrollTop - clientHeight < NEAR;
    // Only a person leaves the end or comes back to it: the page moves its content by itself, too. A link to a place is
    // shown before all of the session is drawn, when that place is still near the end.
    if (performance.now() - moved.current >= HAND_MS) return;
    session.isAtEnd.value = isNear;
    if (!isNear) moved.current = performance.now();
  };
  const move = () => void (moved.current = performance.now());
  return html`<div class="reading">
    <div class="entries" ref=${box} onScroll=${onScroll} onWheel=${move} onTouchMove=${move} onPointerDown=${move} onKeyDown=${move} tabindex="0" role="log" aria-label="Conversation" aria-live="off">
      <div class="sheet" ref=${sheet}><h2 class="away">Conversation</h2><div ref=${top} class="top">${before !== null ? html`<span class="aside">Loading earlier messages…</span>` : session.status.value === "loading" && html`<span class="aside">Loading…</span>`}</div>
      <${Entries} items=${items.slice(undrawn)} version=${changes} asked=${session.questions.value} />${isOver && html`<hr class="end" />`}
      ${session.status.value === "ready" && items.length + session.questions.value.length + session.sending.value.length === 0 && html`<${Later} name="EmptyConversation" />`}</div>
    </div>
    ${!isAtEnd && isLong && html`<button type="button" class="to-end" onClick=${() => ((session.isAtEnd.value = true), toEnd())} title="Jump to the end" aria-label="Jump to the end">↓</button>`}
  </div>`;
}

/** To the prompt above what is seen, or as far as is read for it at once. @param {import("../model/session.js").Session} session */
async function toPrompt(session) {
  const box = document.querySelector(".entries");
  const edge = (box?.getBoundingClientRect().top ?? 0) - 4;
  const above = () => [...(box?.querySelectorAll(".of-prompt") ?? [])].findLast((each) => each.getBoundingClientRect().top < edge);
  for (let page = 0; page < FAR && !above() && (session.undrawn.value > 0 || session.before.value !== null); page++) {
    await session.showEarlier();
    await new Promise(requestAnimationFrame);
  }
  session.isAtEnd.value = false;
  (above() ?? box?.querySelector(".of-prompt"))?.scrollIntoView({ block: "start" });
}

/** @param {number} seq */
function show(seq) {
  const entries = [.../** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(".sheet .entry[id]"))];
  const found = entries.findLast((each) => Number(each.dataset.seq) <= seq) ?? entries[0];
  found?.closest(".looks")?.setAttribute("open", "");
  document.querySelector(".entry.found")?.classList.remove("found");
  found?.scrollIntoView({ block: "start" });
  found?.classList.add("found");
  return found;
}

/** Files that were spoken of, the last ones first. @param {import("../model/session.js").Session} session */
function pathsIn(session) {
  const found = new Set();
  for (const item of session.timeline.items.toReversed()) {
    if (item.kind !== "tool") continue;
    for (const each of [...(item.fields.locations ?? []), ...(item.fields.content ?? [])]) {
      if (typeof each?.path === "string") found.add(each.path.startsWith(`${session.cwd}/`) ? each.path.slice(session.cwd.length + 1) : each.path);
    }
  }
  return /** @type {string[]} */ ([...found]);
}
