// The input for the next prompt: commands after `/`, files after `@`, pictures and files of this
// device, modes and options. While a turn runs, it goes into the queue.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { promptBlocks } from "../model/prompt_blocks.js";
import { CUT, WRITTEN } from "../model/tables.js";
import { asText, line } from "../model/text.js";
import { Guard } from "./guard.js";
import { html } from "./html.js";
import { Later } from "./later.js";

const coarse = matchMedia("(pointer: coarse)");

/** `instead` rejects what the agent asks. @param {{session: import("../model/session.js").Session, isRunning: boolean, instead?: {id: string, reject: () => void}, paths: () => string[]}} props */
export function Composer({ session, isRunning, instead, paths }) {
  const { draft } = session;
  const text = draft.text.value;
  const files = draft.files.value;
  const edited = session.edited.value;
  const [problem, setProblem] = useState("");
  const [isStopping, setStopping] = useState(false);
  useEffect(() => setStopping(false), [isRunning]);
  const area = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  const begunFor = useRef("");  // the question that was there when somebody began to write
  const state = session.timeline.state;
  useEffect(() => void draft.load(), [draft]);
  useLayoutEffect(() => {
    if (!area.current) return;
    area.current.style.height = "auto";
    area.current.style.height = `${Math.min(area.current.scrollHeight, innerHeight * 0.4)}px`;
  }, [text]);

  /** @param {string} next */
  const write = (next) => {
    setProblem("");
    void draft.write(next);
  };
  const isInstead = instead?.id === begunFor.current;
  const isEmpty = !text.trim() && files.length === 0;
  const content = () => [...files.map((each) => each.content), ...promptBlocks(text.trim(), session.cwd)];
  const clear = () => {
    write("");
    draft.files.value = [];
  };
  // Also behind one that is on its way.
  const isBehind = isRunning || session.keeping.value > 0 || session.sending.value.some(({ kept, state }) => !kept.later && state !== "failed");
  /** @param {{at?: number}} [later]  into the queue of the session */
  const send = (later) => {
    if (isEmpty) return;
    if (edited) return void session.putBack({ prompt: content(), ...later }).then(clear, (error) => setProblem(error.message));
    const rejects = isInstead && !later;
    if (rejects && WRITTEN[text.trim().toLowerCase()]) return setProblem("This is no answer. Use the buttons above.");
    if (rejects) instead?.reject();
    // What is said in place of a yes is the next prompt, before what is queued.
    void session.prompt(content(), later ?? (isBehind && !rejects ? {} : undefined));
    clear();
  };
  /** @param {Iterable<File>} chosen */
  const attach = async (chosen) => {
    for (const file of chosen) {
      try {
        const { attachment } = await import(LATER);
        await session.attach();  // its agent says what it takes
        const can = session.introduction.value?.agentCapabilities?.promptCapabilities ?? {};
        const content = await attachment(file, can);
        draft.files.value = [...draft.files.value, { name: file.name, content }];
      } catch (error) {
        setProblem(String(/** @type {Error} */ (error).message));
      }
    }
  };
  /** @param {KeyboardEvent} event */
  const onKey = (event) => {
    if (event.key !== "Enter" || event.isComposing || event.shiftKey) return;
    // On a keyboard of glass Enter is a new line: there the button sends.
    if (coarse.matches && !event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    send();
  };
  /** @param {string} whole */
  const complete = (whole) => {
    write(text.replace(/(^|\s)[/@][^\s]*$/, `$1${whole} `));
    area.current?.focus();
  };
  const found = suggestions(text, state.commands ?? [], paths);

  return html`<form class="composer" onSubmit=${(/** @type {Event} */ event) => (event.preventDefault(), send())}
    onDragOver=${(/** @type {Event} */ event) => event.preventDefault()}
    onDrop=${(/** @type {DragEvent} */ event) => (event.preventDefault(), void attach(event.dataTransfer?.files ?? []))}>
    ${found.length > 0 && html`<ul class="suggestions" aria-label="Suggestions">${found.map(
      ([whole, about]) => html`<li><button type="button" onClick=${() => complete(whole)}><b>${line(whole, CUT.part)}</b> <span>${line(about, CUT.part)}</span></button></li>`,
    )}</ul>`}
    ${files.length > 0 && html`<ul class="attached">${files.map(
      (each, at) => html`<li>${line(each.name || nameOf(each.content), CUT.short)} <button type="button" aria-label=${`Remove ${line(each.name || nameOf(each.content))}`} onClick=${() => (draft.files.value = files.filter((_, other) => other !== at))}>×</button></li>`,
    )}</ul>`}
    ${problem && html`<p class="bad" role="alert">${problem}</p>`}
    ${isStopping && html`<p class="aside" role="status">Stopping…</p>`}
    ${edited && html`<p class="aside" role="status">You are editing a queued prompt. <button type="button" class="quiet" onClick=${() => session.putBack().then(clear, (error) => setProblem(error.message))}>Leave it as it was</button></p>`}
    <div class="row">
      <label class="attach" title="Attach a picture or a file"><span class="away">Attach a picture or a file</span>
        <input type="file" multiple class="away" onChange=${(/** @type {On<HTMLInputElement>} */ event) => (void attach([...(event.target.files ?? [])]), (event.target.value = ""))} /><span aria-hidden="true">+</span></label>
      <textarea ref=${area} rows="1" value=${text} aria-label="Prompt" placeholder=${instead ? "Reject, and tell it what to do" : isBehind ? "Next prompt, after this turn" : "Write to the agent"} enterkeyhint="enter"
        onInput=${(/** @type {On<HTMLInputElement>} */ event) => (text || (void session.attach(), (begunFor.current = instead?.id ?? "")), write(event.target.value))} onKeyDown=${onKey}
        onPaste=${(/** @type {ClipboardEvent} */ event) => event.clipboardData?.files.length && (event.preventDefault(), void attach(event.clipboardData.files))}></textarea>
      <${Guard}><${Later} name="Choices" session=${session} /><//>
      ${!isEmpty && html`<${Later} name="PutOff" session=${session} isRunning=${isRunning} put=${send} content=${content} clear=${clear} setProblem=${setProblem} />`}
      ${isRunning && html`<button type="button" class="stop" disabled=${isStopping || !session.isAttached.value} onClick=${() => (session.cancel(), setStopping(true))} title="Stop the running turn"><span class="away">Stop</span></button>`}
      <button type="submit" class="send" disabled=${isEmpty} title=${edited ? "Put it back into the queue" : isInstead ? "Reject, and send" : isBehind ? "Send after this turn" : "Send"}><span class="away">Send</span></button>
    </div>
  </form>`;
}

/** @param {Received} content */
const nameOf = ({ type, resource }) => (resource?.uri ? decodeURIComponent(asText(resource.uri).split("/").at(-1) ?? "") : type === "image" ? "a picture" : asText(type));

/** @param {string} text @param {Received[]} commands @param {() => string[]} paths @returns {[string, string][]} */
function suggestions(text, commands, paths) {
  const command = /^\/(\S*)$/.exec(text);
  if (command) {
    return commands.filter((each) => each && asText(each.name).startsWith(command[1])).slice(0, 8)
      .map((each) => [`/${asText(each.name)}`, asText(each.description)]);
  }
  const file = /(?:^|\s)@(\S*)$/.exec(text);
  if (!file) return [];
  const sought = file[1].toLowerCase();
  return paths().filter((path) => path.toLowerCase().includes(sought)).slice(0, 8).map((path) => [`@${path}`, ""]);
}
