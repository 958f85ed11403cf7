// On a touch screen a row of the list is archived, and a question put off, by a swipe to the left.
// Both have a button too. A swipe answers nothing: it does not begin on a button or in a field.
import { useEffect, useRef } from "preact/hooks";
import { html } from "./html.js";
import { archive } from "./undo.js";

/** Pixels that a finger goes until it swipes, and until that counts. */
const BEGINS = 12;
const COUNTS = 96;
/** The edges of a screen are the browser's: there it goes back. */
const EDGE = 24;

const still = matchMedia("(prefers-reduced-motion: reduce)");

/** @param {{desk: import("../model/desk.js").Desk}} props  it looks at what is around it */
export function Swipes({ desk }) {
  const mark = useRef(/** @type {HTMLSpanElement | null} */ (null));
  useEffect(() => {
    const list = mark.current?.parentElement;
    return list ? swiped(list, (subject) => act(desk, subject)) : undefined;
  }, []);
  return html`<span ref=${mark} hidden></span>`;
}

/** @param {import("../model/desk.js").Desk} desk @param {HTMLElement} subject */
function act(desk, subject) {
  const id = idOf(subject);
  if (id === undefined) subject.dispatchEvent(new Event("putoff"));
  else void archive(desk, [id], subject.querySelector(".title")?.textContent ?? "", subject.dataset.archived === "true").catch(() => {});  // the row stays
}

/** The session of a row; undefined of a question. @param {HTMLElement} subject */
function idOf(subject) {
  const found = /^#\/session\/([^@]+)$/.exec(subject.getAttribute("href") ?? "")?.[1];
  return found && decodeURIComponent(found);
}

/** Follow fingers in a list. @param {HTMLElement} list @param {(subject: HTMLElement) => void} done @returns {() => void} stops it */
function swiped(list, done) {
  /** @type {{subject: HTMLElement, finger: number, x: number, y: number, far: number, isSwipe: boolean} | null} */
  let swipe = null;
  /** @param {PointerEvent} event */
  const down = ({ pointerType, isPrimary, target, pointerId, clientX, clientY }) => {
    const from = /** @type {HTMLElement} */ (target);
    const subject = /** @type {HTMLElement | null} */ (from.closest("a.session, .inbox section.question"));
    const isOurs = subject && (subject.matches("section") || idOf(subject));
    if (pointerType !== "touch" || !isPrimary || !isOurs || from.closest("button, input, select, textarea, label") || clientX < EDGE || clientX > innerWidth - EDGE) return;
    swipe = { subject, finger: pointerId, x: clientX, y: clientY, far: 0, isSwipe: false };
  };
  /** @param {PointerEvent} event */
  const move = ({ pointerId, clientX, clientY }) => {
    if (swipe?.finger !== pointerId) return;
    const across = clientX - swipe.x;
    const along = Math.abs(clientY - swipe.y);
    if (!swipe.isSwipe && along > BEGINS && along > -across) return leave();
    swipe.isSwipe ||= -across > BEGINS && -across > 2 * along;
    if (!swipe.isSwipe) return;
    swipe.far = -across;
    swipe.subject.classList.add("swiped");
    swipe.subject.classList.toggle("far", swipe.far > COUNTS);
    if (!still.matches) swipe.subject.style.translate = `${Math.min(0, across)}px`;
  };
  const leave = () => {
    if (!swipe) return;
    swipe.subject.classList.remove("swiped", "far");
    swipe.subject.style.translate = "";
    swipe = null;
  };
  /** @param {PointerEvent} event */
  const up = ({ pointerId }) => {
    if (swipe?.finger !== pointerId) return;
    const { subject, far, isSwipe } = swipe ?? {};
    leave();
    if (!subject || !isSwipe) return;
    // A finger that swiped has not tapped.
    const swallow = (/** @type {Event} */ event) => (event.preventDefault(), event.stopPropagation());
    list.addEventListener("click", swallow, { capture: true, once: true });
    setTimeout(() => {
      list.removeEventListener("click", swallow, true);
      if (far && far > COUNTS) done(subject);
    }, 50);
  };
  const heard = /** @type {["pointerdown" | "pointermove" | "pointerup" | "pointercancel", (event: PointerEvent) => void][]} */ ([["pointerdown", down], ["pointermove", move], ["pointerup", up], ["pointercancel", leave]]);
  for (const [name, what] of heard) list.addEventListener(name, what);
  return () => heard.forEach(([name, what]) => list.removeEventListener(name, what));
}
