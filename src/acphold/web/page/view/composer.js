// The input for the next prompt: commands after `/`, files after `@`, pictures and files of this
// device, modes and options. A draft is kept as it is typed.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { promptBlocks } from "../model/prompt_blocks.js";
import { draft, forget, keepDraft } from "../model/sends.js";
import { CUT, WRITTEN } from "../model/tables.js";
import { asText, line } from "../model/text.js";
import { Guard } from "./guard.js";
import { html } from "./html.js";
import { Later } from "./later.js";

const coarse = matchMedia("(pointer: coarse)");

/** `instead` rejects what the agent asks. @param {{session: import("../model/session.js").Session, isRunning: boolean, instead?: {id: string, reject: () => void}, paths: () => string[]}} props */
export function Composer({ session, isRunning, instead, paths }) {
  const [text, setText] = useState("");
  const [files, setFiles] = useState(/** @type {{name: string, content: Received}[]} */ ([]));
  const [problem, setProblem] = useState("");
  const [isStopping, setStopping] = useState(false);
  useEffect(() => setStopping(false), [isRunning]);
  const area = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  const begunFor = useRef("");  // the question that was there when somebody began to write
  const loading = useRef(/** @type {Promise<void>} */ (Promise.resolve()));
  const state = session.timeline.state;
  useEffect(() => {
    let isWanted = true;
    setText("");
    setFiles([]);
    loading.current = draft(session.id).then((kept) => void (isWanted && kept && setText((now) => now || kept))).catch(() => {});
    return () => void (isWanted = false);
  }, [session.id]);
  // What was stopped before it began stands in front of what is being written.
  const returned = session.returned.value;
  useEffect(() => {
    if (returned.length === 0) return;
    session.returned.value = [];
    const content = returned.flatMap((each) => each.content);
    const words = content.filter((each) => each.type === "text").map((each) => each.text);
    void loading.current.then(() => {
      setText((now) => {
        const next = [...words, now].filter(Boolean).join("\n\n");
        void keepDraft(session.id, next).then(() => returned.forEach((each) => forget(each.id))).catch(() => {});
        return next;
      });
      // A link stands in the text, behind its @.
      const others = content.filter((each) => each.type !== "text" && each.type !== "resource_link");
      setFiles((now) => [...others.map((each) => ({ name: nameOf(each), content: each })), ...now]);
    });
  }, [returned]);
  useLayoutEffect(() => {
    if (!area.current) return;
    area.current.style.height = "auto";
    area.current.style.height = `${Math.min(area.current.scrollHeight, innerHeight * 0.4)}px`;
  }, [text]);

  /** @param {string} next */
  const write = (next) => {
    setText(next);
    setProblem("");
    void keepDraft(session.id, next).catch(() => {});
  };
  const isInstead = instead?.id === begunFor.current;
  const isEmpty = !text.trim() && files.length === 0;
  const content = () => [...files.map((each) => each.content), ...promptBlocks(text.trim(), session.cwd)];
  const clear = () => {
    write("");
    setFiles([]);
  };
  /** @param {{at?: number}} [later]  into the queue of the session */
  const send = (later) => {
    if (isEmpty) return;
    const rejects = isInstead && !later;
    if (rejects && WRITTEN[text.trim().toLowerCase()]) return setProblem("This is no answer. Use the buttons above.");
    if (rejects) instead?.reject();
    void session.prompt(content(), later, rejects);
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
        setFiles((was) => [...was, { name: file.name, content }]);
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
      (each, at) => html`<li>${line(each.name, CUT.short)} <button type="button" aria-label=${`Remove ${line(each.name)}`} onClick=${() => setFiles((was) => was.filter((_, other) => other !== at))}>×</button></li>`,
    )}</ul>`}
    ${problem && html`<p class="bad" role="alert">${problem}</p>`}
    ${isStopping && html`<p class="aside" role="status">Stopping…</p>`}
    <div class="row">
      <label class="attach" title="Attach a picture or a file"><span class="away">Attach a picture or a file</span>
        <input type="file" multiple class="away" onChange=${(/** @type {On<HTMLInputElement>} */ event) => (void attach([...(event.target.files ?? [])]), (event.target.value = ""))} /><span aria-hidden="true">+</span></label>
      <textarea ref=${area} rows="1" value=${text} aria-label="Prompt" placeholder=${instead ? "Reject, and tell it what to do" : "Write to the agent"} enterkeyhint="enter"
        onInput=${(/** @type {On<HTMLInputElement>} */ event) => (text || (void session.attach(), (begunFor.current = instead?.id ?? "")), write(event.target.value))} onKeyDown=${onKey}
        onPaste=${(/** @type {ClipboardEvent} */ event) => event.clipboardData?.files.length && (event.preventDefault(), void attach(event.clipboardData.files))}></textarea>
      <${Guard}><${Later} name="Choices" session=${session} /><//>
      ${!isEmpty && html`<${Later} name="PutOff" session=${session} isRunning=${isRunning} put=${send} content=${content} clear=${clear} setProblem=${setProblem} />`}
      ${isRunning && html`<button type="button" class="stop" disabled=${isStopping || !session.isAttached.value} onClick=${() => (session.cancel(), setStopping(true))} title="Stop the running turn"><span class="away">Stop</span></button>`}
      ${(!isRunning || !isEmpty) && html`<button type="submit" class="send" disabled=${isEmpty} title=${isInstead ? "Reject, and send" : "Send"}><span class="away">Send</span></button>`}
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
