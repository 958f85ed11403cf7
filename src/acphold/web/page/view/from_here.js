// A session whose files were kept continues from one of its prompts, with the files of then.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { keepDraft } from "../model/sends.js";
import { baseName, counted, line } from "../model/text.js";
import { device } from "../wire/device.js";
import { read } from "../wire/pages.js";
import { inFront } from "./dialog.js";
import { html } from "./html.js";
import { go, here, place, sessionPlace } from "./places.js";

/** @typedef {{turn: number, before: boolean, after: boolean}} KeptTurn  `turn` is the last entry before its prompt */
/** @typedef {{desk: import("../model/desk.js").Desk, session: import("../model/session.js").Session, turns: KeptTurn[], include: boolean}} Kept  `include`: the project names ignored files that may come along */

/** Where files of the session on the screen were kept. @type {import("@preact/signals").Signal<Kept | null>} */
const kept = signal(null);

/** @param {Kept["desk"]} desk @param {Kept["session"]} session */
async function look(desk, session) {
  const { turns, include } = await read(`/sessions/${encodeURIComponent(session.id)}/kept`);
  if (place.peek().id === session.id) kept.value = { desk, session, turns, include };
}

/** Look where files were kept, again with each change of the session in the list. @param {Kept["desk"]} desk @param {Kept["session"]} session @param {Received} row */
export function useKept(desk, session, row) {
  useEffect(() => {
    // A server that is not reached offers nothing; the next change asks again.
    if (row?.files && device()?.scopes.includes("files")) look(desk, session).catch(() => (kept.value = null));
  }, [session, row?.updatedAt, row?.files?.at, row?.live?.state]);
}

/** The turn that a prompt began, if there are files of it; a prompt inside a turn, or in a sub-agent, began none. @param {import("../model/timeline.js").Prompt} item */
function turnOf(item) {
  const { session, turns } = kept.value ?? {};
  if (!session || !turns || session.id !== place.peek().id) return null;
  const turn = turns.findLast((each) => each.turn < item.seq);
  const prompts = session.timeline.items.filter((each) => each.kind === "prompt");
  if (!turn || prompts.find((each) => each.seq > turn.turn) !== item) return null;
  const isFirst = session.before.value === null && prompts[0] === item;
  return { before: turn.before && !isFirst, after: turn.after };  // before the first one there is nothing to copy
}

/** @param {{item: import("../model/timeline.js").Prompt}} props */
export function FromHere({ item }) {
  const turn = turnOf(item);
  if (!turn?.before && !turn?.after) return null;
  const choose = async () => {
    const { desk, session } = /** @type {Kept} */ (kept.value);
    await look(desk, session).catch(() => {});  // files of its end may be there by now; what is known is offered
    const made = await inFront(Choice, { desk, id: session.id, item, turn: turnOf(item) ?? turn, include: kept.value?.include });
    if (made && here().id === session.id) go(sessionPlace(made));
  };
  return html`<button type="button" class="from-here" onClick=${choose}>Continue from here</button>`;
}

/** @param {{desk: Kept["desk"], id: string, item: import("../model/timeline.js").Prompt, turn: {before: boolean, after: boolean}, include?: boolean, done: (made: string | null) => void}} props */
function Choice({ desk, id, item, turn, include, done }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const [isBusy, setBusy] = useState(false);
  const [isIncluded, setIncluded] = useState(false);
  const [made, setMade] = useState(/** @type {Received} */ (null));
  const [problem, setProblem] = useState("");
  useEffect(() => dialog.current?.showModal(), []);
  // The button with the focus is gone: the next one gets it.
  useEffect(() => made && dialog.current?.querySelector("button")?.focus(), [made]);
  const close = () => (dialog.current?.close(), done(made?.sessionId ?? null));
  /** @param {boolean} before */
  const fork = (before) => async () => {
    setBusy(true);
    setProblem("");
    try {
      const found = await desk.server.call("_acphold/fork", { sessionId: id, at: item.seq, before, files: true, include: isIncluded });
      const words = item.content.filter((each) => each.type === "text").map((each) => each.text).join("\n\n");
      if (before) await keepDraft(found.sessionId, words).catch(() => {});  // to be asked in another way
      setMade(found);
    } catch (error) {
      setProblem(String(/** @type {Error} */ (error).message));
    }
    setBusy(false);
  };
  return html`<dialog ref=${dialog} aria-labelledby="dialog-title" aria-describedby="dialog-text" onCancel=${(/** @type {Event} */ event) => (event.preventDefault(), isBusy || close())}>
    ${made ? html`<div class="from-here">
      <h2 id="dialog-title">The files are in ${line(baseName(made.cwd), 100)}</h2>
      <p id="dialog-text"><code>${line(made.cwd, 400)}</code><br />${made.files?.included ? `${counted(made.files.included, "ignored file was copied as it is", "ignored files were copied as they are")} now. ` : ""}Not included: ${made.files?.included ? "other " : ""}ignored files${made.files?.leftOut ? ` and ${counted(made.files.leftOut, "file")} that the snapshot left out` : ""}.${made.files?.state === "likely" && " They are likely as they were: the agent had spoken before all were read."}${made.files?.state === "late" && " The snapshot was taken late: it may contain the first changes of the turn that followed."}${made.files?.state === "later" && " acphold ended during that turn: these files are from the start of the next one."}</p>
      <div class="choice"><button type="button" class="main" onClick=${close}>Open the new session</button></div></div>`
    : html`<div class="from-here">
      <h2 id="dialog-title">Continue from here, with the files</h2>
      <p id="dialog-text">This makes a new session and, next to the project, a new folder. They get the conversation and the files as they were at this point. This session and its files do not change. Ignored files are not copied.</p>
      ${include && html`<label class="check"><input type="checkbox" checked=${isIncluded} disabled=${isBusy} onChange=${() => setIncluded(!isIncluded)} /> <span>Also copy the ignored files that <code>.worktreeinclude</code> lists, in their current version</span></label>`}
      ${problem && html`<p class="bad" role="alert">${line(problem, 400)}</p>`}
      <div class="moments">
        ${turn.before && html`<button type="button" disabled=${isBusy} onClick=${fork(true)}><b>Before this prompt</b><span>to ask something else, with the files as they were when you sent it</span></button>`}
        ${turn.after && html`<button type="button" disabled=${isBusy} onClick=${fork(false)}><b>After this turn</b><span>to continue with its answer and its changes</span></button>`}
      </div>
      <div class="choice"><button type="button" disabled=${isBusy} onClick=${close}>Cancel</button></div></div>`}
  </dialog>`;
}
