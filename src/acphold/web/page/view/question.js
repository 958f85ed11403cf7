// A question of an agent, drawn outside of the conversation: with a frame that no text can draw,
// and with controls that are never where a text of an agent is.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { mayAllow, partsOf } from "../model/questions.js";
import { CUT } from "../model/tables.js";
import { asText, baseName, line } from "../model/text.js";
import { device } from "../wire/device.js";
import { read } from "../wire/pages.js";
import { Blocks } from "./blocks.js";
import { isCalm, stir } from "./calm.js";
import { editMode } from "./choices.js";
import { FormView, PageView } from "./form.js";
import { Guard } from "./guard.js";
import { html } from "./html.js";
import { Offer } from "./notices.js";
import { hasAllowed, isOffering, Offers } from "./offers.js";
import { Whole } from "./whole.js";

/** @typedef {import("../model/session.js").OpenQuestion} OpenQuestion */
/** @typedef {import("../model/questions.js").Offer} Offer */
/** @typedef {ReturnType<typeof editMode>} EditMode */
/** @typedef {import("../model/questions.js").Shows} Shows */

const PERMISSION = "session/request_permission";
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
    // The list has it a moment later.
    if (each.method === PERMISSION && !told?.shows) return html`<p class="aside" role="status" key=${each.id}>Loading a question of ${who}…</p>`;
    return html`<${Guard} key=${each.id}><${QuestionView} asked=${each} who=${who} cwd=${session.cwd} call=${told?.toolCall ?? session.timeline.tool(each.params.toolCall?.toolCallId)?.fields} shows=${told?.shows} mode=${editMode(session)}
      answer=${session.isAttached.value ? (/** @type {object} */ result) => session.answer(each, result) : undefined} isOpening=${!session.server.isAway}
      stop=${() => session.cancel()} later=${() => setLater((was) => [...was, each.id])} /><//>`;
  })}${asked.length === 0 && (isOffering(isOwn) ? html`<${Offers} fits=${isOwn} />` : hasAsked.current && html`<${Offer} />`)}`;
}

/**
 * @param {{asked: {id: string, method: string, params: Received, state?: string}, call?: Received, shows?: Shows, who: string, cwd: string, mode: EditMode, answer?: (result: object) => void, later: () => void, stop?: () => void, isNarrow?: boolean, isOpening?: boolean}} props
 *   `shows` is what the server says of a request for permission; `answer` is left out while it cannot be answered from here
 */
export function QuestionView({ asked, call, shows, who, cwd, mode, answer, later, stop, isNarrow = false, isOpening = false }) {
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
    if (kind === "allow_once") hasAllowed(params.sessionId, asked.id, tool, isRule);
  });
  const isPermission = method === PERMISSION;
  const tool = asText(params.toolCall?.kind ?? call?.kind);
  const View = isPermission ? Permission : params.mode === "url" ? PageView : FormView;
  const isOff = isBusy || !isCalm.value;
  return html`<section class="question" ref=${section} onputoff=${() => isOff || putOff()} tabindex="-1" aria-label=${`${who} asks: ${line(params.toolCall?.title ?? call?.title ?? params.message, CUT.brief)}`} aria-busy=${isBusy}>
    <header><span class="lamp" aria-hidden="true"></span><h2>${who} ${shows?.wants ?? "asks"}</h2>${isPermission ? cwd && html`<small title=${cwd}>in ${baseName(cwd)}</small>` : html`<button type="button" class="quiet put-off" onClick=${putOff} disabled=${isOff}>Later</button>`}</header>
    <${View} id=${asked.id} params=${params} shows=${shows} isNarrow=${isNarrow} mode=${tool === "edit" ? mode : null} answer=${send} later=${putOff} stop=${stop} isBusy=${isOff} />
    ${isBusy ? html`<p class="aside" role="status">Sending your answer…</p>` : !answer && html`<p class=${isOpening ? "away" : "aside"} role="status">${isOpening ? "Opening the session…" : "You are offline. You can answer when you are online again."}</p>`}
  </section>`;
}

/**
 * The question with its diffs against the files as they are: an agent often says nothing of what is there.
 * @param {string} session @param {string} question @param {Shows} shows
 */
function usePresent(session, question, shows) {
  const [present, setPresent] = useState(/** @type {Shows | undefined} */ (undefined));
  const isAsked = shows.blocks.some(({ kind }) => kind === "diff") && Boolean(device()?.scopes.includes("files"));
  useEffect(() => {
    // Where the files cannot be read, the agent's own words stand.
    if (isAsked) read(`/sessions/${encodeURIComponent(session)}/present`, { question }).then((told) => setPresent(told.shows), () => setPresent(shows));
  }, [question, isAsked]);
  useLayoutEffect(() => void (present && stir()), [present]);
  // How it compares with the file is said once that is known: words that go again would move what is below.
  return present ?? (isAsked ? { ...shows, blocks: shows.blocks.map((block) => (block.kind === "diff" ? { ...block, text: "" } : block)) } : shows);
}

/** What would happen, and the answers; a yes once all of it could be read. @param {{id: string, params: Received, shows: Shows, isNarrow: boolean, mode: EditMode, answer?: (result: object, kind: string, isRule?: boolean) => void, later: () => void, stop?: () => void, isBusy: boolean}} props */
function Permission({ id, params, shows, isNarrow, ...rest }) {
  const scene = usePresent(params.sessionId, id, shows);
  const [opened, setOpened] = useState(/** @type {string[]} */ ([]));
  const parts = useMemo(() => partsOf(scene.blocks, opened), [scene, opened]);
  const isWhole = mayAllow(parts);
  return html`<${Whole}><${Blocks} parts=${parts} open=${(/** @type {string} */ part) => setOpened([...opened, part])} isNarrow=${isNarrow} /><//>
    ${!isWhole && html`<p class="aside" role="status">Open the parts that are cut to allow this.</p>`}
    <${Answers} id=${id} session=${params.sessionId} options=${scene.options} isWhole=${isWhole} ...${rest} />`;
}

/** One yes and one no in a row, in our words; all else below, for who asks for it. @param {{id: string, session: string, options: Offer[], isWhole: boolean, mode: EditMode, answer?: (result: object, kind: string, isRule?: boolean) => void, later: () => void, stop?: () => void, isBusy: boolean}} props */
function Answers({ id, session, options, isWhole, mode, answer, later, stop, isBusy }) {
  const [isOpen, setOpen] = useState(false);
  const [hasRule, setRule] = useState(false);
  const [problem, setProblem] = useState("");
  /** @param {string} kind */
  const first = (kind) => options.find((each) => each.kind === `${kind}_once`) ?? options.find((each) => each.kind.startsWith(kind));
  const [yes, no] = [first("allow"), first("reject")];
  const others = options.filter((each) => each !== yes && each !== no);
  // Of most questions no rule can be made: a wish for one would come to nothing.
  const mayRule = isOpen && yes?.kind === "allow_once" && Boolean(device()?.scopes.includes("rules"));
  useEffect(() => {
    if (mayRule) read("/rules/offers", { session, question: id }).then(({ offers }) => setRule(offers.length > 0), () => {});
  }, [mayRule, id]);
  const isOff = isBusy || !answer;
  /** @param {Offer} each @param {boolean} [isRule] */
  const give = ({ optionId, kind }, isRule) => answer?.({ outcome: { outcome: "selected", optionId } }, kind, isRule);
  const isNo = (/** @type {Offer} */ { kind }) => kind.startsWith("reject");
  // Our words first: what an agent calls its answer may say the opposite.
  /** @param {Offer | undefined} each */
  const button = (each) => each && html`<button type="button" class=${each === yes ? "main" : isNo(each) ? "no" : ""} aria-keyshortcuts=${each === yes && each.kind === "allow_once" ? "Control+Enter" : undefined} disabled=${isOff || !(isWhole || isNo(each))} onClick=${() => give(each)}><span><b>${each.words}${each.name && ":"}</b> ${each.name}</span></button>`;
  return html`<div class="options">
    <div class=${`row ${no?.isLong ? "long" : ""}`}>${button(yes)}${button(no)}<button type="button" class="others" aria-label="More answers" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>⋯</button></div>
    ${isOpen && html`<div class="rest">${others.map(button)}
      ${stop && html`<button type="button" disabled=${isOff} onClick=${stop}>Stop the turn</button>`}
      <button type="button" class="put-off" disabled=${isBusy} onClick=${later}>Later</button>
      ${mode && yes?.kind === "allow_once" && html`<button type="button" disabled=${isOff || !isWhole} onClick=${() => (give(yes), void mode.enter().catch((error) => setProblem(error.message)))}>Allow once, and let the agent accept edits from now on, in its mode ${line(mode.name, CUT.name)}</button>`}
      ${problem && html`<p class="bad" role="alert">${line(problem, CUT.words)}</p>`}
      ${hasRule && yes && html`<button type="button" disabled=${isOff || !isWhole} onClick=${() => give(yes, true)}>Allow once, and choose a rule for the next time</button>`}</div>`}
  </div>`;
}
