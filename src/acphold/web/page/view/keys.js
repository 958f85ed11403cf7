// What single keys do. No single letter answers a question; Ctrl Enter in an open one allows it once.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { inFront } from "./dialog.js";
import { html } from "./html.js";
import { go, place, sessionPlace } from "./places.js";
import { acted, undoLast } from "./undo.js";

const KEYS = [
  [["Ctrl", "K"], "Search all conversations"],
  [["/"], "The same"],
  [["j", "↓"], "Next session in the list; j in Changes, next file"],
  [["k", "↑"], "Previous session, or file; ↑ at the top, the search"],
  [["Enter"], "Open it; in the search, open the first result"],
  [["w"], "Write to the agent: no need to pass its buttons with Tab"],
  [["q"], "To the open question; there Ctrl Enter allows it once, Tab goes to all answers"],
  [["m"], "Menu of the session: arrows and Enter"],
  [["Esc"], "From writing, or from Changes, back to the conversation"],
  [["x"], "Select this session, and then others with j, k and Space"],
  [["a"], "Archive the selected sessions; t tags them, Esc ends selecting"],
  [["u"], "Undo what was done last; a deletion, or a prompt taken from the queue, for ten seconds"],
  [["n"], "New session"],
  [["?"], "Show these keys"],
];

/** What `j` and `k` go through. */
const ROWS = ".home:not(:has(label.session)) .brief a, .home :is(a.session, label.session input), .news .hits a.session";

/** Longest that is waited for the first result, or a view. */
const FIND_MS = 5000;

/** Set where somebody wants no keys of one letter, which speech input may say. */
const OFF = "acphold no keys";

/** @typedef {import("../model/desk.js").Desk} Desk */

/** @param {{desk: Desk}} props */
export function Keys({ desk }) {
  useLayoutEffect(() => {
    const hear = (/** @type {KeyboardEvent} */ event) => onKey(event, desk);
    document.addEventListener("keydown", hear);
    document.addEventListener("focusin", follow);
    return () => (document.removeEventListener("keydown", hear), document.removeEventListener("focusin", follow));
  }, []);
  useLayoutEffect(() => void setTimeout(fromShown), [desk.notices.value]);
  return null;
}

/** The rows as they were when one had the keyboard last, from that one on, then those above it. */
let around = [""];

/** Whether the keyboard is in what is shown for a while. */
let isInShown = false;

/** @param {FocusEvent} event */
function follow({ target }) {
  const row = /** @type {HTMLElement} */ (target);
  isInShown = row.matches(".undo :focus-visible");
  if (!row.matches(ROWS)) return;
  const names = rows().map(nameOf);
  const at = names.indexOf(nameOf(row));
  around = [...names.slice(at), ...names.slice(0, at).reverse()];
}

/** What was shown took the keyboard with it: back to where that was in the list, or nearby. */
function fromShown() {
  if (!isInShown || document.activeElement !== document.body) return;
  isInShown = false;
  const all = new Map(rows().map((row) => [nameOf(row), row]));
  const next = around.find((name) => all.has(name));
  (all.get(next ?? "") ?? document.getElementById("main"))?.focus();
}

/** The address of what a row is of. @param {HTMLElement} row */
const nameOf = (row) => row.getAttribute("href") ?? sessionPlace(row.closest("label")?.dataset.id ?? "");

/** @param {KeyboardEvent} event @param {Desk} desk */
function onKey(event, desk) {
  const { key, ctrlKey, metaKey, altKey, shiftKey } = event;
  const target = /** @type {HTMLInputElement} */ (event.target);
  const isSearch = target.matches(".home search input");
  if (event.defaultPrevented || event.isComposing || document.querySelector("dialog[open]")) return;
  /** @type {((desk: Desk) => void) | undefined} */
  let what;
  if ((ctrlKey || metaKey) && key === "Enter") what = altKey || shiftKey || event.repeat ? undefined : allowing(target);
  else if (ctrlKey || metaKey) what = key === "k" && !altKey ? search : undefined;
  else if (key === "Escape" && target.matches(".conversation textarea")) what = toConversation;
  else if (key === "Escape" && document.querySelector(".chosen") && !target.closest("input:not([type=checkbox]), textarea, select")) what = () => /** @type {HTMLElement} */ (document.querySelector(".chosen .leave")).click();
  else if (key === "Escape" && !target.closest("input, textarea, select")) what = document.querySelector(".changes") ? () => /** @type {HTMLElement} */ (document.querySelector(".changes .back")).click() : undefined;
  else if (isSearch && (key !== "/" || target.value)) what = key === "ArrowDown" ? () => results()[0]?.focus() : key === "Enter" ? () => void openFirst(target) : undefined;
  else if (key === "Enter" && !altKey && !shiftKey && target.matches(":is(.home, .news) a[href^='#/session/']")) what = () => open(target);
  else if (!altKey && !shiftKey && /^Arrow(Down|Up)$/.test(key) && target.matches(ROWS)) what = () => (key === "ArrowDown" ? step(1) : results()[0]?.matches(":focus") ? search() : step(-1));
  else if (!altKey && (isSearch || target.matches(ROWS) || !target.closest("input, textarea, select, [contenteditable]")) && !localStorage.getItem(OFF)) what = SINGLE[key];
  if (!what) return;
  event.preventDefault();
  what(desk);
}

/** @type {Record<string, (desk: Desk) => void>} */
const SINGLE = Object.assign(Object.create(null), {
  "/": search,
  j: () => file(1) || step(1),
  k: () => file(-1) || step(-1),
  w: () => /** @type {HTMLElement | null} */ (document.querySelector(".composer textarea, .other-agent button"))?.focus(),
  q: () => /** @type {HTMLElement[]} */ ([...document.querySelectorAll(".asking section.question"), ...document.querySelectorAll("section.question")]).find((each) => each.checkVisibility())?.focus(),
  m: () => void menu(),
  u: (/** @type {Desk} */ desk) => void undo(desk),
  n: () => (go("#/new"), void soon("main.new textarea").then((field) => field?.focus())),
  x: () => void select(),
  a: () => chosen(1),
  t: () => chosen(2),
  "?": () => void inFront(Shown, {}),
});

/** The element, once it is there; null after FIND_MS. @param {string} selector @returns {Promise<HTMLElement | null>} */
async function soon(selector) {
  for (const begun = performance.now(); performance.now() - begun < FIND_MS; await new Promise(requestAnimationFrame)) {
    const found = /** @type {HTMLElement | null} */ (document.querySelector(selector));
    if (found) return found;
  }
  return null;
}

/** What allows the question that has the keyboard; on a button of it the key would be that button's. @param {HTMLElement} target */
function allowing(target) {
  const allow = target.closest("button, a, input, textarea, select, summary") ? null : target.closest("section.question")?.querySelector("[aria-keyshortcuts='Control+Enter']");
  return allow ? () => /** @type {HTMLElement} */ (allow).click() : undefined;
}

/** Open the menu of what is open, or of the row that has the keyboard. */
async function menu() {
  const row = /** @type {HTMLAnchorElement} */ (document.activeElement);
  if (row.matches(":is(.home, .news) a[href^='#/session/']") && row.hash !== location.hash) {
    const shown = new Promise((resolve) => addEventListener("hashchange", () => setTimeout(resolve), { once: true }));
    row.click();
    await shown;
  }
  (await soon(".conversation .menu > button"))?.click();
  /** @type {HTMLElement | null} */ (document.querySelector("#session-menu:popover-open button"))?.focus();
}

/** Undo what was done last; the keyboard is where that was done, once it is there again. @param {Desk} desk */
async function undo(desk) {
  const { id } = acted;
  undoLast(desk);
  await new Promise((resolve) => setTimeout(resolve));
  if (document.activeElement !== document.body) return;
  const main = document.getElementById("main");
  main?.focus();
  const row = id && (await soon(`.home a.session[href="${sessionPlace(id)}"]`));
  if (row && document.activeElement === main) row.focus();
}

/** Select the row that has the keyboard, and let others be selected. */
async function select() {
  const row = /** @type {HTMLElement} */ (document.activeElement);
  if (row.matches("label.session input")) return row.click();
  const id = row.matches(".home a.session") ? decodeURIComponent(row.getAttribute("href")?.replace("#/session/", "") ?? "") : "";
  if (!document.querySelector(".chosen")) /** @type {HTMLElement | null} */ (document.querySelector(".home .picks > button"))?.click();
  const box = await soon(`.home label.session${id && `[data-id="${CSS.escape(id)}"]`} input`);
  box?.focus();
  if (id) box?.click();
}

/** Do something with those that are selected. @param {number} number  of the button */
const chosen = (number) => /** @type {HTMLElement | null} */ (document.querySelector(`.chosen button:nth-of-type(${number})`))?.click();

/** To the search, which on a narrow screen is not beside what is open. */
function search() {
  const field = () => /** @type {HTMLInputElement | null} */ (document.querySelector(".home search input"));
  const focus = () => (field()?.focus(), field()?.select());
  if (field()?.checkVisibility()) return focus();
  addEventListener("hashchange", () => setTimeout(focus), { once: true });
  go("#/");
}

/** To the next file of the changes that are shown, or the one before. @param {1 | -1} by @returns {boolean} whether changes are shown */
function file(by) {
  const files = /** @type {HTMLElement[]} */ ([...document.querySelectorAll(".changes .change h2")]);
  const at = files.indexOf(/** @type {HTMLElement} */ (document.activeElement));
  const next = files[Math.max(0, Math.min(files.length - 1, at + by))];
  next?.focus({ preventScroll: true });
  next?.scrollIntoView({ block: "start" });
  return files.length > 0;
}

/** What is seen of them. */
const rows = () => /** @type {HTMLAnchorElement[]} */ ([...document.querySelectorAll(ROWS)]).filter((each) => each.checkVisibility());

/** Those that a search leaves; what waits stands above it. */
const results = () => rows().filter((each) => !each.closest(".brief"));

/** To the next row of the list, or to the one before; the first one is next to what is no row. @param {1 | -1} by */
function step(by) {
  const all = rows();
  const at = all.indexOf(/** @type {HTMLAnchorElement} */ (document.activeElement));
  const from = at < 0 ? all.findLastIndex((each) => each.ariaCurrent || each.hash === location.hash) : at;
  all[Math.max(0, Math.min(all.length - 1, from + by))]?.focus();
}

/** Open the first result, which may be known a moment later, unless somebody goes on meanwhile. @param {HTMLInputElement} field */
async function openFirst(field) {
  const { value } = field;
  for (const begun = performance.now(); performance.now() - begun < FIND_MS; await new Promise(requestAnimationFrame)) {
    if (document.activeElement !== field || field.value !== value) return;
    const isBusy = document.querySelector(".hits[aria-busy=true]");
    const first = results().find((each) => !isBusy || !each.closest(".hits"));
    if (first) return first.hash ? open(first) : first.focus();
    if (!isBusy) return;
  }
}

/** Open what a row is of; the keyboard goes along. @param {HTMLElement} row */
function open(row) {
  if (/** @type {HTMLAnchorElement} */ (row).hash === location.hash) return toConversation();
  addEventListener("hashchange", () => setTimeout(toConversation), { once: true });
  row.click();
}

/** To what is read: arrows move it, and `j` goes on in the list. */
function toConversation() {
  /** @type {HTMLElement | null} */ (document.querySelector(".conversation .entries"))?.focus({ preventScroll: true });
}

/** To the composer of a session that was just begun, once it is drawn: what is typed next is for its agent. @param {string} id */
export async function toComposer(id) {
  const field = await soon(".composer textarea");
  if (document.activeElement === document.body && place.value.id === id) field?.focus();
}

/** @param {{done: () => void}} props */
function Shown({ done }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const [isOff, setOff] = useState(localStorage.getItem(OFF) !== null);
  useEffect(() => {
    dialog.current?.showModal();
    dialog.current?.scrollTo(0, 0);  // the button that has the keyboard stands at its end
  }, []);
  const turn = () => {
    if (isOff) localStorage.removeItem(OFF);
    else localStorage.setItem(OFF, "yes");
    setOff(!isOff);
  };
  return html`<dialog ref=${dialog} class="keys" aria-labelledby="keys-title" onCancel=${(/** @type {Event} */ event) => (event.preventDefault(), done())} onClick=${(/** @type {Event} */ event) => event.target === dialog.current && done()}>
    <h2 id="keys-title">Keys</h2>
    <dl>${KEYS.map(([keys, what]) => html`<div><dt>${/** @type {string[]} */ (keys).map((each) => html`<kbd>${each}</kbd> `)}</dt><dd>${what}</dd></div>`)}</dl>
    <label class="check"><input type="checkbox" checked=${!isOff} onChange=${turn} />Keys without Ctrl</label>
    <div class="choice"><button type="button" class="main" autofocus onClick=${done}>Close</button></div>
  </dialog>`;
}
