// A question of an agent, drawn outside of the conversation: with a frame that no text can draw,
// and with controls that are never where a text of an agent is.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { callOf, shown } from "../model/permission.js";
import { asText, line, unfenced } from "../model/text.js";
import { isCalm, stir } from "./calm.js";
import { coded, words } from "./coded.js";
import { FormView, PageView } from "./form.js";
import { Guard } from "./guard.js";
import { html } from "./html.js";
import { Produced } from "./inside.js";
import { Long } from "./long.js";
import { Offer } from "./notices.js";
import { hasAllowed, Offers } from "./offers.js";
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
  const root = own.closest("#main, .home");
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
  // The offer stands above: when it comes or goes, the answers keep their place.
  return html`${asked.length > 0 && html`<${Offer} />`}${asked.map((each) => {
    if (later.includes(each.id)) return html`<button type="button" class="later" key=${each.id} onClick=${() => setLater((was) => was.filter((id) => id !== each.id))}>${who} is waiting for your answer</button>`;
    const told = waiting.find(({ id }) => id === each.id);
    return html`<${Guard} key=${each.id}><${QuestionView} asked=${each} who=${who} call=${told?.toolCall ?? session.timeline.tool(each.params.toolCall?.toolCallId)?.fields} shows=${told?.shows}
      answer=${session.isAttached.value ? (/** @type {object} */ result) => session.answer(each, result) : undefined}
      later=${() => setLater((was) => [...was, each.id])} /><//>`;
  })}<${Offers} fits=${(/** @type {string} */ id) => id === session.id} />`;
}

/**
 * @param {{asked: {id: string, method: string, params: Received, state?: string}, call?: Received, shows?: import("../model/permission.js").Shows, who: string, answer?: (result: object) => void, later: () => void, isNarrow?: boolean, isOpening?: boolean}} props
 *   `shows` is what the server says of it and of `call`, once that is there; `answer` is left out while it cannot be answered from here
 */
export function QuestionView({ asked, call, shows, who, answer, later, isNarrow = false, isOpening = false }) {
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
  const send = answer && ((/** @type {object} */ result, /** @type {string} */ kind) => {
    isDone.current = true;
    answer(result);
    if (kind === "allow_once") hasAllowed(params.sessionId, asked.id);
  });
  const View = method === "session/request_permission" ? Permission : params.mode === "url" ? PageView : FormView;
  return html`<section class="question" ref=${section} tabindex="-1" aria-label=${`${who} asks: ${line(params.toolCall?.title ?? call?.title ?? params.message, 80)}`} aria-busy=${isBusy}>
    <header><span class="lamp" aria-hidden="true"></span><h2>${who} asks</h2><button type="button" class="quiet put-off" onClick=${putOff} disabled=${isBusy || !isCalm.value}>Later</button></header>
    <${View} id=${asked.id} params=${params} call=${call} shows=${shows} isNarrow=${isNarrow} answer=${send} isBusy=${isBusy || !isCalm.value} />
    ${isBusy ? html`<p class="aside" role="status">Sending your answer…</p>` : !answer && html`<p class="aside" role="status">${isOpening ? "Opening the session…" : "You are offline. You can answer when you are online again."}</p>`}
  </section>`;
}

/** @param {{params: Received, call?: Received, shows?: import("../model/permission.js").Shows, isNarrow: boolean, answer?: (result: object, kind: string) => void, isBusy: boolean}} props */
function Permission({ params, call, shows, isNarrow, answer, isBusy }) {
  const tool = callOf(params, call);
  const { title, arguments: given, options, content } = shows ?? shown(params, tool);
  const produced = content.map((at) => tool.content?.[at]).filter(Boolean);
  const allow = options.filter((each) => !each.kind.startsWith("reject"));
  const reject = options.filter((each) => each.kind.startsWith("reject"));
  // Our words first: what an agent calls its answer may say the opposite.
  /** @param {import("../model/permission.js").Offer} each */
  const button = ({ optionId, kind, words, name }) => html`<button type="button" class=${kind === "allow_once" ? "main" : ""} disabled=${isBusy || !answer}
    onClick=${() => answer?.({ outcome: { outcome: "selected", optionId } }, kind)}><span><b>${line(words, 60)}:</b> ${line(name, 120) || "(no name)"}</span></button>`;
  return html`<${Whole}>
      <${Title} title=${title || (given.length > 0 ? `Allow this${tool.kind === "execute" ? " command" : ""}?` : "A tool call")} isCommand=${tool.kind === "execute" && given.length === 0 && title} />
      ${given.length > 0 && html`<dl class="arguments">${given.map(({ name, text }) => html`<div>${name && html`<dt>${line(name, 120)}</dt>`}<dd><${Command} text=${text} /></dd></div>`)}</dl>`}
      ${produced.map((each) => (each.content?.type === "text" ? html`<${Command} text=${unfenced(asText(each.content.text))} />` : html`<${Produced} content=${each} isOneColumn=${isNarrow} />`))}
    <//>
    <div class="options"><div class="allow">${allow.map(button)}</div><div class="reject">${reject.map(button)}</div></div>`;
}

/** Longer texts are shown as they are. */
const MOST_MARKED = 5000;

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
