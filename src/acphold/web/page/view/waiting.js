// The prompts to come in a session: those of this page that have not begun, and the session's queue,
// which all its clients share.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { newId } from "../model/sends.js";
import { CUT, ENDINGS, HELD } from "../model/tables.js";
import { counted, line, wordTable, visible } from "../model/text.js";
import { moment } from "../model/times.js";
import { html } from "./html.js";
import { notify } from "./undo.js";

/** @typedef {import("../model/desk.js").Desk} Desk */
/** @typedef {import("../model/session.js").Session} Session */
/** @typedef {import("../model/session.js").Queued} Queued */

/** @param {{desk: Desk, session: Session}} props */
export function Waiting({ desk, session }) {
  return html`<${Sending} session=${session} /><${Queue} desk=${desk} session=${session} />`;
}

const STATES = wordTable({ kept: "Saved on this device; will be sent when you are online", opening: "Saved on this device; will be sent when the session is open", sent: "Sending…", arrived: "Sent; waiting for the current turn" });

/** Prompts whose turn has not begun. @param {{session: Session}} props */
function Sending({ session }) {
  const isOnline = session.server.link.value.state === "online";
  const waiting = session.sending.value.filter((each) => each.state !== "begun" && each.state !== "again");
  return waiting.length > 0 && html`<ul class="sending" aria-label="Prompts being sent">${waiting.map(
    ({ kept, state, error }) => html`<li key=${kept.id} class=${state}>
      <p>${visible(kept.content.map((each) => each.text ?? "").join(" ").slice(0, CUT.words))}</p>
      <p class="aside" role="status">${state === "failed" ? line(error, CUT.long) : STATES[state === "kept" && isOnline ? "opening" : state]}
        ${(state === "failed" || state === "kept") && html` <button type="button" class="quiet" onClick=${() => session.discard(kept)}>${state === "failed" ? "Dismiss" : "Do not send"}</button>`}</p>
    </li>`,
  )}</ul>`;
}

/** How prompts left the queue. */
const END_STATES = wordTable({ ...ENDINGS, done: "done", takenBack: "taken back" });

/** @param {import("../model/session.js").EndedPrompt} ended */
const endState = ({ state }) => END_STATES[state] ?? line(state, CUT.short);

/** @param {import("../model/session.js").Queue} queue */
function rules({ goesOn, restarts }) {
  const after = (/** @type {boolean | undefined} */ goes) => (goes ? "continue" : "pause");
  if (goesOn === restarts) return `If a turn fails or acphold restarts: ${after(goesOn)}`;
  return `If a turn fails: ${after(goesOn)}; if acphold restarts: ${after(restarts)}`;
}

/** The queue of the session, in order; a device that can only watch changes nothing. @param {{desk: Desk, session: Session}} props */
function Queue({ desk, session }) {
  const { waiting = [], held, until, ended = [], edited = [], goesOn = false, restarts = false } = session.queue.value ?? {};
  const [problem, setProblem] = useState("");
  const list = useRef(/** @type {HTMLOListElement | null} */ (null));
  // What had the focus moves, or goes away: it is for this row then, for its button of this name.
  const focus = useRef(/** @type {{id?: string, name: string} | null} */ (null));
  useLayoutEffect(() => {
    if (!focus.current) return;
    const { id, name } = focus.current;
    focus.current = null;
    const row = [...(list.current?.children ?? [])].find((each) => /** @type {HTMLElement} */ (each).dataset.id === id);
    const buttons = [.../** @type {NodeListOf<HTMLButtonElement>} */ (row?.querySelectorAll(".deeds button:enabled") ?? [])];
    (buttons.find((each) => each.textContent === name) ?? buttons[0] ?? document.getElementById("main"))?.focus();
  }, [session.queue.value]);
  /** @param {object} change */
  const act = (change) => session.queueRequest({ change }).then(() => setProblem(""), (error) => setProblem(error.message));
  const goOn = () => {
    const isHeld = session.queue.peek()?.held;
    session.afterStop.value = isHeld ? "" : "continue";
    if (isHeld) void act({ do: "go" });
  };
  // The question is over once the queue runs again: the end of the turn may be told before the hold.
  const last = useRef(session.queue.value);
  useEffect(() => {
    const before = last.current;
    const now = (last.current = session.queue.value);
    const isReleased = !now?.held && (before?.held || (now?.begun && before?.begun?.id !== now.begun.id));
    if (!now?.waiting || isReleased || (now.held && now.held !== "cancelled")) session.afterStop.value = "";
    else if (session.afterStop.value === "continue" && now.held) goOn();
  }, [session.queue.value]);
  if (waiting.length === 0 && !held) return null;

  const isOff = !session.isAttached.value;
  const mayChange = session.permits("prompt");
  const isAsked = session.afterStop.value === "ask";
  /** Put it before the next one. @param {string} id */
  const putNext = (id) => {
    focus.current = { id, name: "Edit" };
    void act({ do: "move", id, before: waiting[0].id });
  };
  /** @param {string} id */
  const edit = (id) => session.editQueued(id).then(() => document.querySelector(/** @type {"textarea"} */ (".composer textarea"))?.focus(), (error) => setProblem(error.message));
  /** Take it out; for a while it can be put back where it was. @param {Queued} prompt @param {string} [next] */
  const remove = async ({ id, words, at }, next) => {
    try {
      const { prompt } = await session.queueRequest({ read: id });
      focus.current = { id: next ?? waiting.findLast((each) => each.id !== id)?.id, name: "Remove" };
      await session.queueRequest({ change: { do: "drop", id } });
      setProblem("");
      const back = () => {
        const before = session.queue.peek()?.waiting?.some((each) => each.id === next) ? next : undefined;
        void act({ do: "add", prompt, at, before });
      };
      notify(desk, `“${line(words, CUT.name)}” was removed from the queue.`, back, undefined, true);  // later it would begin at once
    } catch (error) {
      setProblem(/** @type {Error} */ (error).message);
    }
  };
  // The stop has held it already, or will once the server has it.
  const pause = () => (session.afterStop.value = "");
  /** @param {string} name @param {"goesOn" | "restarts"} rule @param {boolean} isOn */
  const rule = (name, rule, isOn) => html`<label class="check"><input type="checkbox" checked=${isOn} disabled=${isOff || !mayChange} onChange=${(/** @type {On<HTMLInputElement>} */ event) => act({ do: "set", [rule]: event.target.checked })} />${name}</label>`;

  return html`<section class="queue" aria-label="Queue">
    <header><h2>${waiting.length ? counted(waiting.length, "queued prompt") : "Queue"}</h2>
      <p role="status">${held && `${HELD[held] ?? `paused: ${line(held, CUT.name)}`}${until ? `, until ${moment(until)}` : ""}`}</p>
      ${mayChange && !isAsked && html`<button type="button" class=${held ? "main" : ""} disabled=${isOff} onClick=${() => act({ do: held ? "go" : "hold" })}>${held ? "Resume" : "Pause"}</button>`}</header>
    ${isAsked && html`<div class="rest" role="alert"><p>You stopped the turn. Resume the queued prompts?</p>
      <div class="deeds"><button type="button" class="main" disabled=${isOff} onClick=${pause}>Keep paused</button><button type="button" disabled=${isOff} onClick=${goOn}>Resume</button></div></div>`}
    <ol ref=${list}>${waiting.map((each, at) => {
      const words = line(each.words, CUT.title);
      const isEdited = edited.includes(each.id);
      const about = [each.at && `not before ${moment(each.at)}`, isEdited && "being edited"].filter(Boolean).join(", ");
      /** @param {string} name @param {() => unknown} what @param {boolean} [isNone] */
      const button = (name, what, isNone) => html`<button type="button" aria-label=${`${name}: ${line(words, CUT.name)}`} disabled=${isOff || isNone} onClick=${what}>${name}</button>`;
      return html`<li key=${each.id} data-id=${each.id}>
        <div class="words"><p>${words}</p>${about && html`<p class="aside">${about}</p>`}</div>
        ${mayChange && html`<div class="deeds">
          ${button("Next", () => putNext(each.id), at === 0)}${button("Edit", () => edit(each.id), session.edited.value === each.id || session.draft.text.value.trim() !== "")}
          ${button("Remove", () => remove(each, waiting[at + 1]?.id))}</div>`}
      </li>`;
    })}</ol>
    <footer><details><summary>${rules({ goesOn, restarts })}</summary>
        ${rule("Continue after a turn that failed or was refused", "goesOn", goesOn)}${rule("Continue after a restart", "restarts", restarts)}</details>
      ${ended.length > 0 && html`<details><summary>${countsOf(ended)}</summary><ul>${ended.map((each) => html`<li key=${each.id}><b>${endState(each)}</b> ${line(each.words, CUT.title)} <time>${moment(each.at)}</time></li>`)}</ul></details>`}</footer>
    ${problem && html`<p class="bad" role="alert">${line(problem, CUT.words)}</p>`}
  </section>`;
}

/** How many of them ended in which way. @param {import("../model/session.js").EndedPrompt[]} ended */
function countsOf(ended) {
  const ways = [...new Set(ended.map(endState))];
  return ways.map((way) => `${ended.filter((each) => endState(each) === way).length} ${way}`).join(", ");
}

const HOUR = 3_600_000;

/** Send words into the running turn; resolves to true if the agent has taken them. @param {Session} session @param {Received[]} prompt */
async function steer(session, prompt) {
  const _meta = { steering: { idleBehavior: "promptRequired" } };
  await session.attach();
  const { outcome } = await session.server.call("_session/steering", { sessionId: session.id, prompt, _meta });
  if (outcome !== "injected") return false;
  const messageId = `acphold-${newId()}`;
  // The server does not send it back to us: show it here, where the answer came.
  for (const content of prompt) session.receive({ sessionId: session.id, update: { sessionUpdate: "user_message_chunk", messageId, content } });
  return true;
}

/**
 * Buttons for what is written: into the running turn, if the agent takes that; into the queue; into the queue for a time.
 * @param {{session: Session, isRunning: boolean, put: (later?: {at?: number}) => void, content: () => Received[], clear: () => void, setProblem: (problem: string) => void}} props
 */
export function PutOff({ session, isRunning, put, content, clear, setProblem }) {
  const [isSending, setSending] = useState(false);
  const [at, setAt] = useState(/** @type {string | null} */ (null));
  const [isPast, setPast] = useState(false);
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  const isOpen = at !== null;
  useEffect(() => {
    field.current?.focus();
    field.current?.closest("div")?.scrollIntoView({ block: "nearest" });
  }, [isOpen]);
  const queue = session.queue.value;
  const takesWords = isRunning && !session.edited.value && session.introduction.value?._meta?.steering?.supported === true;
  if (!session.permits("prompt") || !(queue || takesWords)) return null;
  const sendNow = async () => {
    setSending(true);
    try {
      if (await steer(session, content())) clear();
      else put();  // that turn is over
    } catch (error) {
      const { code, message } = /** @type {{code?: number, message: string}} */ (error);
      setProblem(code ? message : "The connection was lost. Check whether the agent received this before you send it again.");
    }
    setSending(false);
  };
  const putAt = () => {
    const then = new Date(at ?? "").getTime();
    if (then > Date.now()) put({ at: then });
    else setPast(true);
  };
  /** In the form of the prompt, which Enter would send. @param {KeyboardEvent} event */
  const onKey = (event) => {
    if (event.key === "Escape") setAt(null);
    if (event.key !== "Enter" || event.target !== field.current) return;
    event.preventDefault();
    putAt();
  };
  return html`<div class="put-off" onKeyDown=${onKey}>${isOpen
    ? html`<label>Not before <input ref=${field} type="datetime-local" value=${at} onInput=${(/** @type {On<HTMLInputElement>} */ event) => (setAt(event.target.value), setPast(false))} /></label>
      <button type="button" class="main" onClick=${putAt}>Queue</button><button type="button" onClick=${() => setAt(null)}>Cancel</button>
      ${isPast && html`<p class="bad" role="alert">Choose a time in the future.</p>`}`
    : html`${takesWords && html`<button type="button" class="quiet" disabled=${isSending || !session.isAttached.value} onClick=${sendNow} title="Send into the running turn: the agent reads it while it works">Now</button>`}
      ${queue && html`<button type="button" class="quiet" onClick=${() => setAt(asField(Math.ceil((Date.now() + 1) / HOUR) * HOUR))} title="Add to the queue, for a time that you choose">Later at…</button>`}`}</div>`;
}

/** The hour of this place as a field has it. @param {number} at */
const asField = (at) => new Date(at - new Date(at).getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
