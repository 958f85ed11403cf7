// Keys for who has a keyboard. None answers a question.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { inFront } from "./dialog.js";
import { html } from "./html.js";
import { go } from "./places.js";

const KEYS = [
  [["Ctrl", "K"], "Search all conversations"],
  [["/"], "The same"],
  [["j"], "Next session in the list; in Changes, next file"],
  [["k"], "Previous session, or file"],
  [["Esc"], "From Changes back to the conversation"],
  [["Enter"], "Open it"],
  [["n"], "New session"],
  [["?"], "Show these keys"],
];

/** Set where somebody wants no keys of one letter, which speech input may say. */
const OFF = "acphold no keys";

export function Keys() {
  useLayoutEffect(() => {
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
  return null;
}

/** @param {KeyboardEvent} event */
function onKey(event) {
  const { key, ctrlKey, metaKey, altKey } = event;
  const target = /** @type {HTMLInputElement} */ (event.target);
  const isSearch = target.matches(".home search input");
  if (event.defaultPrevented || event.isComposing || document.querySelector("dialog[open]")) return;
  /** @type {(() => void) | undefined} */
  let what;
  if (ctrlKey || metaKey) what = key === "k" && !altKey ? search : undefined;
  else if (key === "Escape" && !target.closest("input, textarea, select")) what = document.querySelector(".changes") ? () => /** @type {HTMLElement} */ (document.querySelector(".changes .back")).click() : undefined;
  else if (isSearch && (key !== "/" || target.value)) what = key === "ArrowDown" || key === "Enter" ? () => step(1, key === "Enter") : undefined;
  else if (!altKey && (isSearch || !target.closest("input, textarea, select, [contenteditable]")) && !localStorage.getItem(OFF)) what = SINGLE[key];
  if (!what) return;
  event.preventDefault();
  what();
}

/** @type {Record<string, () => void>} */
const SINGLE = Object.assign(Object.create(null), {
  "/": search,
  j: () => file(1) || step(1),
  k: () => file(-1) || step(-1),
  n: () => go("#/new"),
  "?": () => void inFront(Shown, {}),
});

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

/** To the next row of the list, or to the one before; the first one is next to what is no row. @param {1 | -1} by @param {boolean} [opens] */
function step(by, opens) {
  const rows = /** @type {HTMLElement[]} */ ([...document.querySelectorAll(".home :is(.brief a, a.session), .news .hits a.session")]).filter((each) => each.checkVisibility());
  const at = rows.indexOf(/** @type {HTMLElement} */ (document.activeElement));
  const from = at < 0 ? rows.findIndex((each) => each.ariaCurrent) : at;
  const next = rows[Math.max(0, Math.min(rows.length - 1, from + by))];
  if (opens) next?.click();
  else next?.focus();
}

/** @param {{done: () => void}} props */
function Shown({ done }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const [isOff, setOff] = useState(localStorage.getItem(OFF) !== null);
  useEffect(() => dialog.current?.showModal(), []);
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
