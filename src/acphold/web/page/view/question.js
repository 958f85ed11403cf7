// A question of an agent, drawn outside of the conversation: with a frame that no text can draw,
// and with controls that are never where a text of an agent is.
import { line } from "../model/text.js";
import { html } from "./html.js";
import { Later } from "./later.js";
import { Long } from "./long.js";
import { commandOf, Input, Produced } from "./tool_call.js";

/** @typedef {import("../model/session.js").Asked} Asked */

/**
 * @param {{asked: {method: string, params: any, state?: string}, call?: any, who: string, answer?: (result: object) => void, later?: () => void}} props
 *   `answer` is left out while it cannot be answered from here
 */
export function QuestionView({ asked, call, who, answer, later }) {
  const { method, params } = asked;
  const isBusy = asked.state === "answering";
  return html`<section class="question" aria-label=${`${who} asks: ${line(params.toolCall?.title ?? call?.title ?? params.message, 80)}`} aria-busy=${isBusy}>
    <header><span class="lamp" aria-hidden="true"></span><h2>${who} asks</h2>${later && html`<button type="button" class="quiet" onClick=${later} disabled=${isBusy}>Later</button>`}</header>
    ${method === "session/request_permission"
      ? html`<${Permission} params=${params} call=${call} answer=${answer} isBusy=${isBusy} />`
      : html`<${Later} name=${params.mode === "url" ? "PageView" : "FormView"} params=${params} answer=${answer} isBusy=${isBusy} />`}
    ${isBusy ? html`<p class="aside" role="status">Your answer is on its way.</p>` : !answer && html`<p class="aside" role="status">It can be answered as soon as the connection is there.</p>`}
  </section>`;
}

/** @param {{params: any, call?: any, answer?: (result: object) => void, isBusy: boolean}} props */
function Permission({ params, call, answer, isBusy }) {
  // What is asked may be a part alone: the rest was said with the call.
  const tool = { ...call, ...params.toolCall };
  const command = commandOf(tool.rawInput);
  const title = tool.title ?? "A tool call";
  const diffs = (tool.content ?? []).filter((/** @type {any} */ each) => each);
  const options = /** @type {any[]} */ (params.options ?? []);
  /** @param {string} optionId */
  const choose = (optionId) => answer?.({ outcome: { outcome: "selected", optionId } });
  const allow = options.filter((each) => !String(each.kind).startsWith("reject"));
  const reject = options.filter((each) => String(each.kind).startsWith("reject"));
  /** @param {any} each */
  const button = (each) => html`<button type="button" class=${each.kind === "allow_once" ? "main" : String(each.kind)} disabled=${isBusy || !answer} onClick=${() => choose(each.optionId)}>${line(each.name, 120)}</button>`;
  return html`<div class="what">
      <p class=${command === undefined || command === tool.title ? "asks command" : "asks"}><${Long} text=${title} /></p>
      <${Input} input=${tool.rawInput} title=${tool.title} />
      ${diffs.map((/** @type {any} */ each) => html`<${Produced} content=${each} />`)}
    </div>
    <div class="options"><div class="allow">${allow.map(button)}</div><div class="reject">${reject.map(button)}</div></div>`;
}
