// The work tree of a session: what would come back from it, and its way back; what goes with a deleted
// session. Nothing is done but what was seen: the server refuses it once anything is different.
import { useEffect, useRef, useState } from "preact/hooks";
import { CUT } from "../model/tables.js";
import { counted, exact, line, pathLine } from "../model/text.js";
import { device } from "../wire/device.js";
import { Counts } from "./changes.js";
import { Copy } from "./copy.js";
import { inFront } from "./dialog.js";
import { html } from "./html.js";

/** @typedef {import("../model/desk.js").Desk} Desk */
/** @typedef {[path: string, added: number | null, removed: number | null]} File */
/**
 * @typedef {{top: string, source: string, branch: string, mark: string, title: string, locked?: string, isGone?: boolean, isOurs?: boolean, isMerged?: boolean,
 *   problem?: string, target?: string, into?: string, command?: string, commits?: string[], files?: File[], uncommitted?: string[], changed?: string[], conflicts?: string[],
 *   numbers?: Record<string, number>, ownGit?: string}} Tree  as `_acphold/worktree` tells it
 */

/** Commits and files that are shown. */
const SHOWN = 10;

/** @param {Desk} desk @param {string} id @param {object} [deed] @returns {Promise<Tree>} */
const ask = (desk, id, deed) => desk.server.call("_acphold/worktree", { sessionId: id, ...deed });

/** Let a person see what would come from the work tree of a session, and merge it. @param {Desk} desk @param {string} id */
export const bringBack = (desk, id) => inFront(WayBack, { desk, id });

/**
 * The work trees that can go with these sessions: the session of each, its mark, and what goes with it, in words.
 * @param {Desk} desk @param {string[]} ids @returns {Promise<{id: string, mark: string, words: string}[]>}
 */
export async function treesOf(desk, ids) {
  if (!device()?.scopes.includes("files")) return [];
  const found = await Promise.all(ids.map((id) => ask(desk, id).then((tree) => ({ id, tree }), () => ({ id, tree: null }))));
  return found.flatMap(({ id, tree }) => (tree?.isOurs ? [{ id, mark: tree.mark, words: withLosses(tree) }] : []));
}

/** @param {Tree} tree */
function withLosses({ top, branch, target, problem, numbers }) {
  const losses = [problem && line(problem), numbers?.commits && `${counted(numbers.commits, "commit")} that ${line(target)} lacks`, numbers?.uncommitted && counted(numbers.uncommitted, "uncommitted file")].filter(Boolean);
  return `${pathLine(top)}${branch ? ` and the branch ${line(branch)}` : ""}${losses.length ? `, with ${losses.join(" and ")}` : ""}`;
}

/** @param {{desk: Desk, id: string, done: (answer: null) => void}} props */
function WayBack({ desk, id, done }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const [tree, setTree] = useState(/** @type {Tree | null} */ (null));
  const [isBusy, setBusy] = useState(true);
  const [problem, setProblem] = useState("");
  /** @param {"commit" | "merge"} [deed] */
  const go = async (deed) => {
    setBusy(true);
    setProblem("");
    try {
      setTree(await ask(desk, id, deed && { do: deed, seen: tree?.mark }));
    } catch (error) {
      setProblem(/** @type {Error} */ (error).message);
      // What is there now is what the next yes is to.
      if (deed) await ask(desk, id).then(setTree, () => {});
    }
    setBusy(false);
  };
  useEffect(() => (dialog.current?.showModal(), void go()), []);
  const { target = "", numbers = {}, commits = [], files = [], uncommitted = [], changed = [], conflicts = [] } = tree ?? {};
  const isReady = tree && !tree.isMerged && commits.length > 0 && !changed.length && !conflicts.length && !tree.ownGit && !tree.problem;
  const into = line(target, CUT.name);
  return html`<dialog ref=${dialog} class="way-back" aria-busy=${isBusy} aria-labelledby="dialog-title" onCancel=${(/** @type {Event} */ event) => (event.preventDefault(), isBusy || done(null))}>
    <div class="from-here">
      <h2 id="dialog-title">${tree?.isMerged ? `Merged into ${into}` : target ? `Merge into ${into}` : "Merge"}</h2>
      ${!tree && !problem && html`<p class="aside">Looking at the repository…</p>`}
      ${tree && !tree.source && html`<p>This session works in no work tree of its own.</p>`}
      ${tree?.source && html`<p class="aside"><code>${line(tree.source, CUT.name)}</code>${target && html` → <code>${into}</code>`}${tree.into && html` in <code>${pathLine(tree.into)}</code>`}</p>`}
      ${tree?.isGone && html`<p class="note">${pathLine(tree.top)} was deleted: what was not committed there is lost.</p>`}
      ${tree?.locked && html`<p class="note">${pathLine(tree.top)} is locked: ${line(tree.locked)}.</p>`}
      ${uncommitted.length > 0 && html`<section><h3>${counted(numbers.uncommitted ?? 0, "file")} not committed</h3>
        <${Names} names=${uncommitted.map(pathLine)} all=${numbers.uncommitted} />
        <button type="button" disabled=${isBusy} onClick=${() => go("commit")}>Commit as “${line(tree?.title, CUT.brief)}”</button></section>`}
      ${commits.length > 0 && html`<section><h3>${counted(numbers.commits ?? 0, "commit")}</h3><${Names} names=${commits.map((each) => line(each))} all=${numbers.commits} /></section>
        <section><h3>${counted(numbers.files ?? 0, "file")}</h3>
        <${Names} all=${numbers.files} names=${files.map(([path, added, removed]) => html`<span class="path">${pathLine(path)}</span> ${added === null || removed === null ? html`<span class="aside">binary</span>` : html`<${Counts} added=${added} removed=${removed} />`}`)} /></section>`}
      ${tree?.target && commits.length === 0 && html`<p role="status">${tree.isMerged ? "" : "Nothing to merge: "}${into} has all of its commits${tree.isMerged ? " now" : ""}.</p>`}
      ${tree?.problem && html`<p class="bad" role="alert">${line(tree.problem, CUT.long)}</p>`}
      ${changed.length > 0 ? html`<p class="bad" role="alert">${pathLine(tree?.into ?? "")} has uncommitted changes in the same files. Commit or stash them there first.</p><${Names} names=${changed.map(pathLine)} all=${numbers.changed} />`
        : conflicts.length > 0 ? html`<p class="bad" role="alert">Git finds conflicts in ${counted(numbers.conflicts ?? 0, "file")}. Resolve them with your own git.</p><${Names} names=${conflicts.map(pathLine)} all=${numbers.conflicts} /><${Command} text=${tree?.command} />`
        : commits.length > 0 && tree?.ownGit && html`<p role="status">Your own git has to merge it: ${line(tree.ownGit, CUT.long)}.</p><${Command} text=${tree?.command} />`}
      ${problem && html`<p class="bad" role="alert">${line(problem, CUT.long)}</p>`}
      <div class="choice"><button type="button" disabled=${isBusy && tree !== null} onClick=${() => done(null)}>${isReady ? "Cancel" : "Close"}</button>
        ${isReady && html`<button type="button" class="main" disabled=${isBusy} onClick=${() => go("merge")}>Merge</button>`}</div></div>
  </dialog>`;
}

/** The first of many. @param {{names: unknown[], all?: number}} props */
const Names = ({ names, all = names.length }) => html`<ul class="names">${names.slice(0, SHOWN).map((each) => html`<li>${each}</li>`)}${all > SHOWN && html`<li class="aside">and ${all - SHOWN} more</li>`}</ul>`;

/** @param {{text?: string}} props */
const Command = ({ text = "" }) => html`<div class="by-hand"><pre tabindex="0">${exact(text)}</pre><${Copy} text=${text} /></div>`;
