// Finds words in a session: in what is loaded first, then in what was before.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import { whole } from "./places.js";

/** Pages that are read at once when somebody asks for more; a pause of typing reads one. */
const PAGES = 20;

/** After the last letter, until what is typed is sought. */
const PAUSE_MS = 100;

/** @param {import("../model/timeline.js").Item} item @returns {string} */
function textOf(item) {
  if (item.kind === "said" || item.kind === "compaction") return item.prose.text;
  if (item.kind === "prompt") return item.content.map((each) => each?.text ?? "").join(" ");
  if (item.kind === "tool") return [item.fields.title, ...(item.fields.content ?? []).map((each) => each?.content?.text ?? each?.newText ?? "")].join(" ");
  return "";
}

/** @param {{session: import("../model/session.js").Session, done: () => void}} props */
export function Find({ session, done }) {
  const [words, setWords] = useState("");
  const [status, setStatus] = useState("");
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  const at = useRef(-1);
  const run = useRef(0);  // what is sought ends what was sought before
  const isTyped = useRef(false);  // until it is sought
  useEffect(() => field.current?.focus(), []);
  useEffect(() => () => (run.current++, void mark(null, "")), []);
  useEffect(() => {
    isTyped.current = true;
    const pause = setTimeout(() => isTyped.current && void go(0), PAUSE_MS);
    return () => clearTimeout(pause);
  }, [words]);

  /** To the match above (-1), below (1), or where somebody is, else to the newest; behind the last one is the first. @param {1 | 0 | -1} step */
  const go = async (step) => {
    const mine = ++run.current;
    const by = isTyped.current ? 0 : step;
    const pages = step === 0 ? 1 : PAGES;
    isTyped.current = false;
    const sought = words.trim().toLowerCase();
    const none = (/** @type {string} */ why) => {
      at.current = -1;
      mark(null, "");
      setStatus(why);
    };
    if (!sought) return none("");
    for (let page = 0; ; page++) {
      const keys = session.timeline.items.filter((item) => textOf(item).toLowerCase().includes(sought)).map((item) => item.key);
      const before = session.before.value;
      const now = keys.indexOf(at.current);
      const next = now < 0 ? keys.length - 1 : now + by;
      if (keys.length > 0 && (next >= 0 || before === null || page === pages)) {
        const place = (next + keys.length) % keys.length;
        const key = (at.current = keys[place]);
        setStatus(`${place + 1} of ${keys.length}${before === null ? "" : ", so far"}`);
        session.isAtEnd.value = false;
        if (!entryOf(key)) await session.drawAll();
        requestAnimationFrame(() => void show(session, key, sought, () => run.current === mine));
        return;
      }
      if (before === null || page === pages) return none(before === null ? "No matches" : "No matches so far; ↑ looks further");
      if (keys.length === 0) none("");
      setStatus("Searching earlier messages…");
      session.isAtEnd.value = false;
      await session.loadOlder();
      if (run.current !== mine) return;
      if (session.before.value === before) return setStatus("Earlier messages cannot be loaded now");
    }
  };
  /** @param {KeyboardEvent} event */
  const onKey = (event) => {
    if (event.isComposing) return;
    if (event.key === "Escape") done();
    if (event.key === "Enter") void go(event.shiftKey ? 1 : -1);
  };
  return html`<search class="find">
    <input ref=${field} type="search" aria-label="Find in this session" placeholder="Find in this session" value=${words} onKeyDown=${onKey}
      onInput=${(/** @type {On<HTMLInputElement>} */ event) => setWords(event.target.value)} />
    <output aria-live="polite">${status}</output>
    <button type="button" aria-label="Previous match" onClick=${() => go(-1)}>↑</button><button type="button" aria-label="Next match" onClick=${() => go(1)}>↓</button>
    <button type="button" aria-label="Close" onClick=${done}>×</button>
  </search>`;
}

/** @param {number} key */
const entryOf = (key) => document.querySelector(`.sheet .entry[data-key="${key}"]`);

/** @param {import("../model/session.js").Session} session @param {number} key @param {string} sought @param {() => boolean} isWanted */
async function show(session, key, sought, isWanted) {
  const entry = entryOf(key);
  if (!entry || !isWanted()) return;
  entry.closest(".looks")?.setAttribute("open", "");
  mark(entry, sought);
  entry.scrollIntoView({ block: "center" });
  if (!entry.querySelector("[aria-busy]")) return;
  await whole(entry);
  if (!isWanted() || !entry.classList.contains("found")) return;
  mark(entry, sought);
  if (!session.isAtEnd.value) entry.scrollIntoView({ block: "center" });
}

/** Colour the words in an entry, where the browser can. @param {Element | null} entry @param {string} sought */
function mark(entry, sought) {
  document.querySelector(".entry.found")?.classList.remove("found");
  entry?.classList.add("found");
  if (typeof Highlight !== "function") return;
  CSS.highlights.delete("found");
  if (!entry) return;
  const ranges = [];
  const walk = document.createTreeWalker(entry, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = /** @type {Text} */ (walk.currentNode).data;
    const small = text.toLowerCase();
    if (small.length !== text.length) continue;  // places would be wrong
    for (let at = small.indexOf(sought); at >= 0 && ranges.length < 500; at = small.indexOf(sought, at + sought.length)) {
      const range = new Range();
      range.setStart(walk.currentNode, at);
      range.setEnd(walk.currentNode, at + sought.length);
      ranges.push(range);
    }
  }
  if (ranges.length > 0) CSS.highlights.set("found", new Highlight(...ranges));
}
