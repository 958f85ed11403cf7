// A question of an agent, drawn outside of the conversation: with a frame that no text can draw,
// and with controls that are never where a text of an agent is.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { callOf, saysMore, shown } from "../model/permission.js";
import { Prose } from "../model/prose.js";
import { asText, baseName, line, unfenced, wordTable } from "../model/text.js";
import { device } from "../wire/device.js";
import { read } from "../wire/pages.js";
import { isCalm, stir } from "./calm.js";
import { coded, words } from "./coded.js";
import { FormView, PageView } from "./form.js";
import { Guard } from "./guard.js";
import { html } from "./html.js";
import { Produced } from "./inside.js";
import { Long } from "./long.js";
import { Offer } from "./notices.js";
import { hasAllowed, isOffering, Offers } from "./offers.js";
import { ProseView } from "./prose.js";
import { Whole } from "./whole.js";

/** @typedef {import("../model/session.js").OpenQuestion} OpenQuestion */

const coarse = matchMedia("(pointer: coarse)");

/**
 * Before a question goes: what has the focus in it would leave it to nobody. The next one has it then,
 * or else where one writes; on glass the list or the conversation, as a keyboard would come up.
 * @param {HTMLElement} own @param {boolean} isDone  by who had it
 */
function passFocus(own, isDone) {
  if (!own.contains(document.activeElement) && !(isDone && document.activeElement === document.body)) return;
  const root = own.closest("#main, .home, .panes");
  const all = [...(root?.querySelectorAll("section.question") ?? [])];
  const at = all.indexOf(own);
  const next = all[at + 1] ?? all[at - 1] ?? (coarse.matches ? root : root?.querySelector("textarea, input[type=search]"));
  setTimeout(() => /** @type {HTMLElement | null | undefined} */ (next)?.focus({ preventScroll: true }));
}

/** All that a session asks, beside it. @param {{session: import("../model/session.js").Session, who: string, waiting: import("../model/desk.js").Waiting[]}} props */
export function Questions({ session, who, waiting }) {
  const [later, setLater] = useState(/** @type {string[]} */ ([]));
  void session.changes.value;  // what is asked about may be told a moment after the question
  const asked = session.questions.value;
  const hasAsked = useRef(false);
  hasAsked.current ||= asked.length > 0;
  const isOwn = (/** @type {string} */ id) => id === session.id;
  // Nothing else is offered beside a question, and one thing at a time.
  return html`${asked.map((each) => {
    if (later.includes(each.id)) return html`<button type="button" class="later" key=${each.id} onClick=${() => setLater((was) => was.filter((id) => id !== each.id))}>${who} is waiting for your answer</button>`;
    const told = waiting.find(({ id }) => id === each.id);
    return html`<${Guard} key=${each.id}><${QuestionView} asked=${each} who=${who} cwd=${session.cwd} call=${told?.toolCall ?? session.timeline.tool(each.params.toolCall?.toolCallId)?.fields} shows=${told?.shows}
      answer=${session.isAttached.value ? (/** @type {object} */ result) => session.answer(each, result) : undefined} isOpening=${session.server.isOnline}
      stop=${() => session.cancel()} later=${() => setLater((was) => [...was, each.id])} /><//>`;
  })}${asked.length === 0 && (isOffering(isOwn) ? html`<${Offers} fits=${isOwn} />` : hasAsked.current && html`<${Offer} />`)}`;
}

/**
 * @param {{asked: {id: string, method: string, params: Received, state?: string}, call?: Received, shows?: import("../model/permission.js").Shows, who: string, cwd: string, answer?: (result: object) => void, later: () => void, stop?: () => void, isNarrow?: boolean, isOpening?: boolean}} props
 *   `shows` is what the server says of it and of `call`, once that is there; `answer` is left out while it cannot be answered from here
 */
export function QuestionView({ asked, call, shows, who, cwd, answer, later, stop, isNarrow = false, isOpening = false }) {
  const { method, params } = asked;
  const isBusy = asked.state === "answering";
  const section = useRef(/** @type {HTMLElement | null} */ (null));
  useLayoutEffect(() => {
    const own = section.current;
    stir();
    return () => (stir(), own && passFocus(own, isDone.current));
  }, []);
  const isDone = useRef(false);  // with what was done the focus may be gone already
  const putOff = () => ((isDone.current = true), later());
  const send = answer && ((/** @type {object} */ result, /** @type {string} */ kind, isRule = false) => {
    isDone.current = true;
    answer(result);
    if (kind === "allow_once") hasAllowed(params.sessionId, asked.id, asText(params.toolCall?.kind ?? call?.kind), isRule);
  });
  const isPermission = method === "session/request_permission";
  const told = callOf(params, call);
  const wanted = (shows ?? shown(params, told)).outside ? "wants to work outside its folder" : (WANTS[told.kind] ?? "asks");
  const View = isPermission ? Permission : params.mode === "url" ? PageView : FormView;
  const isOff = isBusy || !isCalm.value;
  return html`<section class="question" ref=${section} onputoff=${() => isOff || putOff()} tabindex="-1" aria-label=${`${who} asks: ${line(params.toolCall?.title ?? call?.title ?? params.message, 80)}`} aria-busy=${isBusy}>
    <header><span class="lamp" aria-hidden="true"></span><h2>${who} ${isPermission ? wanted : "asks"}</h2>${isPermission ? cwd && html`<small title=${cwd}>in ${baseName(cwd)}</small>` : html`<button type="button" class="quiet put-off" onClick=${putOff} disabled=${isOff}>Later</button>`}</header>
    <${View} id=${asked.id} params=${params} call=${call} shows=${shows} isNarrow=${isNarrow} answer=${send} later=${putOff} stop=${stop} isBusy=${isOff} />
    ${isBusy ? html`<p class="aside" role="status">Sending your answer…</p>` : !answer && html`<p class="aside" role="status">${isOpening ? "Opening the session…" : "You are offline. You can answer when you are online again."}</p>`}
  </section>`;
}

/** What an agent wants, by the kind of its call. */
const WANTS = wordTable({ execute: "wants to run", edit: "wants to change files", delete: "wants to delete", move: "wants to move files", read: "wants to read", search: "wants to search", fetch: "wants to fetch" });

/**
 * The diffs of a call against the files as they are, by their places: an agent often says nothing of what is there.
 * @param {string} session @param {string} question @param {Received[]} content @returns {Record<string, Received>}
 */
function usePresent(session, question, content) {
  const [present, setPresent] = useState(/** @type {Record<string, Received>} */ ({}));
  const hasDiff = content.some((each) => each?.type === "diff");
  useEffect(() => {
    if (!hasDiff || !device()?.scopes.includes("files")) return;
    // Where the files cannot be read, the agent's own words stand.
    read(`/sessions/${encodeURIComponent(session)}/present`, { question }).then(({ diffs }) => {
      setPresent(Object.fromEntries(Object.entries(diffs).map(([at, told]) => [at, { ...content[Number(at)], ...told, isPresent: true }])));
    }, () => {});
  }, [question, hasDiff]);
  return present;
}

/** Longer arguments are folded, where what will happen stands above them. */
const MOST_OPEN = 200;

/** What will happen, whole; then where, and all else. @param {{id: string, params: Received, call?: Received, shows?: import("../model/permission.js").Shows, isNarrow: boolean, answer?: (result: object, kind: string, isRule?: boolean) => void, later: () => void, stop?: () => void, isBusy: boolean}} props */
function Permission({ id, params, call, shows, isNarrow, answer, later, stop, isBusy }) {
  const tool = callOf(params, call);
  const { title, arguments: given, options, content, outside = [] } = shows ?? shown(params, tool);
  const present = usePresent(params.sessionId, id, tool.content ?? []);
  const produced = content.map((at) => present[at] ?? tool.content?.[at]).filter(Boolean);
  const what = given.filter(({ part }) => part === "what");
  const others = given.filter(({ part }) => part !== "what");
  const hasDiff = produced.some((each) => each.type === "diff");
  const words = title ? html`<${Title} title=${title} isCommand=${tool.kind === "execute" && given.length === 0} />` : given.length + produced.length + outside.length === 0 && html`<p class="asks">A tool call</p>`;
  const texts = produced.map((each) => (each.content?.type === "text" ? html`<${Words} text=${asText(each.content.text)} isOutput=${tool.kind === "execute"} />` : html`<${Produced} content=${each} isOneColumn=${isNarrow} />`));
  return html`<${Whole}>
      ${outside.map((folder) => html`<${Command} text=${folder} />`)}
      ${what.map(({ text }) => html`<${Command} text=${text} />`)}
      ${hasDiff ? html`${texts}${words}` : html`${words}${texts}`}
      ${others.length > 0 && html`<dl class="arguments">${others.map(({ name, text }) => html`<div>${name && html`<dt>${line(name, 120)}</dt>`}<dd>${(what.length > 0 || hasDiff) && text.length > MOST_OPEN
        ? html`<details><summary>${line(text, 80)}</summary><${Command} text=${text} /></details>` : html`<${Command} text=${text} />`}</dd></div>`)}</dl>`}
    <//>
    <${Answers} options=${options} answer=${answer} later=${later} stop=${stop} isBusy=${isBusy} />`;
}

/** A no with more letters has a row of its own on a phone. */
const LONG = 16;

/** One yes and one no in a row, in our words; all else below, for who asks for it. @param {{options: import("../model/permission.js").Offer[], answer?: (result: object, kind: string, isRule?: boolean) => void, later: () => void, stop?: () => void, isBusy: boolean}} props */
function Answers({ options, answer, later, stop, isBusy }) {
  const [isOpen, setOpen] = useState(false);
  /** @param {string} kind */
  const first = (kind) => options.find((each) => each.kind === `${kind}_once`) ?? options.find((each) => each.kind.startsWith(kind));
  const [yes, no] = [first("allow"), first("reject")];
  const others = options.filter((each) => each !== yes && each !== no);
  const isOff = isBusy || !answer;
  /** @param {import("../model/permission.js").Offer} each @param {boolean} [isRule] */
  const give = ({ optionId, kind }, isRule) => answer?.({ outcome: { outcome: "selected", optionId } }, kind, isRule);
  // Our words first: what an agent calls its answer may say the opposite.
  /** @param {import("../model/permission.js").Offer | undefined} each */
  const button = (each) => each && html`<button type="button" class=${each === yes ? "main" : each.kind.startsWith("reject") ? "no" : ""} disabled=${isOff} onClick=${() => give(each)}><span><b>${each.kind === "reject_once" ? "reject" : line(each.words, 60)}${saysMore(each) && ":"}</b>${saysMore(each) && html` ${line(each.name, 120)}`}</span></button>`;
  const reply = () => {
    if (no) give(no);
    setTimeout(() => /** @type {HTMLElement | null} */ (document.querySelector(".composer textarea"))?.focus(), 50);
  };
  return html`<div class="options">
    <div class=${`row ${no && saysMore(no) && no.name.length > LONG ? "long" : ""}`}>${button(yes)}${button(no)}<button type="button" class="others" aria-label="More answers" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>⋯</button></div>
    ${isOpen && html`<div class="rest">${others.map(button)}
      ${yes?.kind === "allow_once" && device()?.scopes.includes("rules") && html`<button type="button" disabled=${isOff} onClick=${() => give(yes, true)}>Allow once, and choose a rule for the next time</button>`}
      ${no && document.querySelector(".composer") && html`<button type="button" disabled=${isOff} onClick=${reply}>Reject, and write instead</button>`}
      ${stop && html`<button type="button" disabled=${isOff} onClick=${stop}>Stop the turn</button>`}
      <button type="button" class="put-off" disabled=${isBusy} onClick=${later}>Later</button></div>`}
  </div>`;
}

/** Longer texts are shown as they are. */
const MOST_MARKED = 5000;

/** A text of the agent: what a shell is to do as it is, all else as it is written elsewhere. @param {{text: string, isOutput: boolean}} props */
function Words({ text, isOutput }) {
  const prose = useMemo(() => new Prose(text), [text]);
  return isOutput || text.length > MOST_MARKED ? html`<${Command} text=${unfenced(text)} />` : html`<${ProseView} prose=${prose} />`;
}

/** The title of a call; what is between backticks is drawn as code. @param {{title: string, isCommand: boolean}} props */
function Title({ title, isCommand }) {
  const whole = /^\s*`([^`]+)`\s*$/.exec(title)?.[1];
  if (isCommand || whole) return html`<div class="asks"><${Command} text=${whole ?? title} /></div>`;
  if (title.length > MOST_MARKED) return html`<p class="asks"><${Long} text=${title} /></p>`;
  return html`<p class="asks">${coded(title)}</p>`;
}

/** A command, or another text that is given. @param {{text: string}} props */
function Command({ text }) {
  return html`<pre class="command" tabindex="0">${text.length > MOST_MARKED
    ? html`<${Long} text=${text} />`
    : words(text)}</pre>`;
}
