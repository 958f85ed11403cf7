// A session continues in a copy: from one of its prompts, with the files of then, with another agent.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { CUT } from "../model/tables.js";
import { agentName, baseName, counted, line, pathLine } from "../model/text.js";
import { device } from "../wire/device.js";
import { read } from "../wire/pages.js";
import { inFront } from "./dialog.js";
import { html } from "./html.js";
import { go, place, sessionPlace } from "./places.js";

/** @typedef {{turn: number, before: boolean, after: boolean}} KeptTurn  `turn` is the last entry before its prompt */
/** @typedef {{desk: import("../model/desk.js").Desk, session: import("../model/session.js").Session, turns: KeptTurn[], include: boolean, isInTree: boolean}} Kept  `include`: the project names ignored files that may come along; `isInTree`: it works in a work tree, whose work may come back */

/** The session on the screen, and where its files were kept. @type {import("@preact/signals").Signal<Kept | null>} */
const kept = signal(null);

/** @param {Kept["desk"]} desk @param {Kept["session"]} session */
async function look(desk, session) {
  const { turns, include, isInTree } = await read(`/sessions/${encodeURIComponent(session.id)}/kept`);
  if (place.peek().id === session.id) kept.value = { desk, session, turns, include, isInTree };
}

/** Look where files were kept, again with each change of the session in the list. @param {Kept["desk"]} desk @param {Kept["session"]} session @param {Received} row */
export function useKept(desk, session, row) {
  useEffect(() => {
    const without = () => (kept.value = { desk, session, turns: [], include: false, isInTree: false });
    if (kept.peek()?.session !== session) without();
    // A server that is not reached offers none; the next change asks again.
    if (device()?.scopes.includes("files")) look(desk, session).catch(without);
  }, [session, row?.updatedAt, row?.files?.at, row?.live?.state]);
}

/** True if a session on the screen works in a work tree. @param {Kept["session"]} session */
export const isInTree = (session) => kept.value?.session === session && kept.value.isInTree;

/** True if there are files of the end of a session, as the server knows it: its row in the list may say it later. @param {Kept["desk"]} desk @param {Kept["session"]} session @param {Received} row */
export async function hasFilesNow(desk, session, row) {
  if (row?.files?.state === "refused" || !device()?.scopes.includes("files")) return false;
  if (!row?.files) await look(desk, session).catch(() => {});
  return Boolean(row?.files ?? (kept.peek()?.session === session && kept.peek()?.turns.at(-1)?.after));
}

/** The turn that a prompt began, if there are files of it; a prompt inside a turn, or in a sub-agent, began none. @param {import("../model/timeline.js").Prompt} item */
function turnOf(item) {
  const { session, turns = [] } = kept.value ?? {};
  const turn = turns.findLast((each) => each.turn < item.seq);
  const prompts = session?.timeline.items.filter((each) => each.kind === "prompt") ?? [];
  return turn && prompts.find((each) => each.seq > turn.turn) === item ? turn : null;
}

/** @param {{item: import("../model/timeline.js").Prompt}} props */
export function FromHere({ item }) {
  const { desk, session } = kept.value ?? {};
  if (!desk || !session?.timeline.items.includes(item) || !session.permits("manage")) return null;
  const choose = async () => {
    if (kept.peek()?.turns.length) await look(desk, session).catch(() => {});  // files of its end may be there by now; what is known is offered
    const turn = turnOf(item);
    const isFirst = session.before.peek() === null && session.timeline.items.find((each) => each.kind === "prompt") === item;
    await continueInCopy({ desk, session, item, files: { before: turn?.before && !isFirst, after: turn?.after }, isFirst, include: kept.value?.include });
  };
  return html`<button type="button" class="from-here" onClick=${choose}>Continue from here</button>`;
}

/** @typedef {{desk: Kept["desk"], session: Kept["session"], item?: import("../model/timeline.js").Prompt, files: {before?: boolean, after?: boolean}, isFirst?: boolean, include?: boolean}} Start  without an `item` all of it is copied; `files` tells of what moments there are files */

/** Let the person choose how a copy begins, make it, and go to it. @param {Start} start */
export async function continueInCopy(start) {
  const made = await inFront(Choice, start);
  if (made) go(sessionPlace(made));
}

/** @param {Start & {done: (made: string | null) => void}} props */
function Choice({ desk, session, item, files, isFirst, include, done }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const agents = desk.server.agents.value;
  const hasFiles = files.before || files.after;
  const [isBusy, setBusy] = useState(false);
  const [isWithFiles, setWithFiles] = useState(Boolean(hasFiles));
  const [isIncluded, setIncluded] = useState(false);
  const [agent, setAgent] = useState("");
  const [made, setMade] = useState(/** @type {Received} */ (null));
  const [problem, setProblem] = useState("");
  useEffect(() => dialog.current?.showModal(), []);
  // The button with the focus is gone: the next one gets it.
  useEffect(() => made && dialog.current?.querySelector("button")?.focus(), [made]);
  /** @param {string} [id] */
  const close = (id = made?.sessionId) => done(id ?? null);
  /** @param {boolean} before */
  const copy = (before) => async () => {
    setBusy(true);
    setProblem("");
    try {
      const found = await desk.server.call("_acphold/fork", { sessionId: session.id, agent: agent || undefined, ...(item && { at: item.seq, before }), files: isWithFiles, include: isWithFiles && isIncluded });
      const words = item?.content.filter((each) => each.type === "text").map((each) => each.text).join("\n\n");
      if (before && words) await desk.session(found.sessionId).draft.write(words);  // to be asked in another way
      if (!isWithFiles) return close(found.sessionId);
      setMade(found);
    } catch (error) {
      setProblem(String(/** @type {Error} */ (error).message));
    }
    setBusy(false);
  };
  /** @param {"before" | "after"} moment @param {string} name @param {string} words */
  const choice = (moment, name, words) => html`<button type="button" disabled=${isBusy || (isWithFiles && !files[moment])} onClick=${copy(moment === "before")}><b>${name}</b><span>${words}</span></button>`;
  return html`<dialog ref=${dialog} aria-busy=${isBusy} aria-labelledby="dialog-title" aria-describedby="dialog-text" onCancel=${(/** @type {Event} */ event) => (event.preventDefault(), isBusy || close())}>
    ${made ? html`<div class="from-here">
      <h2 id="dialog-title">The files are in ${line(baseName(made.cwd), CUT.part)}</h2>
      <p id="dialog-text"><code>${pathLine(made.cwd)}</code><br />${made.files?.included ? `${counted(made.files.included, "ignored file was copied as it is", "ignored files were copied as they are")} now. ` : ""}${made.files?.included ? "Other files" : "Files"} in .gitignore, if any, were not copied${made.files?.leftOut ? `, nor ${counted(made.files.leftOut, "file")} that the snapshot left out` : ""}.${made.files?.state === "likely" && " They are likely as they were: the agent had spoken before all were read."}${made.files?.state === "late" && " The snapshot was taken late: it may contain the first changes of the turn that followed."}${made.files?.state === "later" && " acphold ended during that turn: these files are from the start of the next one."}</p>
      <div class="choice"><button type="button" class="main" onClick=${() => close()}>Open the new session</button></div></div>`
    : html`<div class="from-here">
      <h2 id="dialog-title">Continue in a copy</h2>
      <p id="dialog-text">This makes a new session with the conversation up to ${item ? "this point" : "its last turn"}. This session does not change.</p>
      ${hasFiles && html`<label class="check"><input type="checkbox" checked=${isWithFiles} disabled=${isBusy} onChange=${() => setWithFiles(!isWithFiles)} /> <span>Also copy the files as they were then (not what <code>.gitignore</code> names)</span></label>`}
      ${isWithFiles && include && html`<label class="check"><input type="checkbox" checked=${isIncluded} disabled=${isBusy} onChange=${() => setIncluded(!isIncluded)} /> <span>Also copy the ignored files that <code>.worktreeinclude</code> lists, in their current version</span></label>`}
      ${agents.length > 1 && html`<label>Agent<select value=${agent} disabled=${isBusy} onChange=${(/** @type {On<HTMLInputElement>} */ event) => setAgent(event.target.value)}><option value="">The same</option>${agents.map((each) => html`<option key=${each} value=${each}>${agentName(each)}</option>`)}</select></label>`}
      ${problem && html`<p class="bad" role="alert">${line(problem, CUT.long)}</p>`}
      ${item && html`<div class="moments">
        ${!isFirst && choice("before", "Before this prompt", "to ask something else")}
        ${choice("after", "After this turn", "to continue with its answer and its changes")}
      </div>`}
      <div class="choice"><button type="button" disabled=${isBusy} onClick=${() => close()}>Cancel</button>
        ${!item && html`<button type="button" class="main" disabled=${isBusy} onClick=${copy(false)}>Continue</button>`}</div></div>`}
  </dialog>`;
}
