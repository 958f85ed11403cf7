// What a session changed in files, over all of it or in a turn: for a review, with keys.
import { useEffect, useMemo, useState } from "preact/hooks";
import { patchLines } from "../model/patches.js";
import { CUT, SHOWN } from "../model/tables.js";
import { called, counted, line, pathLine } from "../model/text.js";
import { read } from "../wire/pages.js";
import { OneColumn, useWide } from "./columns.js";
import { html } from "./html.js";
import { useSome } from "./pieces.js";
import { go, sessionPlace } from "./places.js";
import { TwoColumns } from "./two_columns.js";

/** @typedef {{path: string, patch: string, added: number, removed: number, rest: number, gap: string | null, turns: number[]}} File */
/** @typedef {{turn: number, seq: number, text: string}} Prompt */
/** @typedef {{turns: number, turn: number | null, files: File[], more: number, prompts: Prompt[], kept: boolean, notes: string[]}} FileChanges */

/** Lines of a file that are shown at first, and each time that somebody asks for more. */
const FIRST = SHOWN.patchLines;
const MORE = SHOWN.morePatchLines;

/** Lines that are drawn in one task. */
const AT_ONCE = 200;

/** How long a session rests before its changes are read again. */
const PAUSE_MS = 3000;

/** Prompts that stand above a file. */
const PROMPTS = 3;

/** The `seq` of a turn in the address; 1 is for the last one. @param {number} turn */
const seqOf = (turn) => turn + 1;

/** `seq` is 1 for the last prompt alone, and one more than its number for a turn. @param {{desk: import("../model/desk.js").Desk, id: string, seq: number}} props */
export function Changes({ desk, id, seq }) {
  const [changes, setChanges] = useState(/** @type {FileChanges | null} */ (null));
  const [problem, setProblem] = useState("");
  const row = desk.rows.value.get(id);
  const address = `/sessions/${encodeURIComponent(id)}/changes`;
  const turn = seq > 1 ? seq - 1 : seq ? "last" : "";
  // The turns that changed something are known by what all of them changed.
  const [turns, setTurns] = useState(/** @type {Prompt[]} */ ([]));
  useEffect(() => setChanges(null), [address, turn]);
  useEffect(() => {
    if (changes && changes.turn === null) setTurns(changes.prompts);
    else if (turns.length === 0) read(address).then((found) => setTurns(found.prompts), () => {});
  }, [address, changes]);
  useEffect(() => {
    const over = new AbortController();
    // While a turn runs they change all the time: they are read again once it rests.
    const pause = setTimeout(
      () => read(address, { turn }, { signal: over.signal }).then(
        (found) => over.signal.aborted || (setChanges(found), setProblem("")),
        (error) => over.signal.aborted || setProblem(error.message),
      ),
      changes ? PAUSE_MS : 0,
    );
    return () => (clearTimeout(pause), over.abort());
  }, [address, turn, row?.updatedAt]);
  const place = `#/changes/${encodeURIComponent(id)}`;
  const sum = (/** @type {"added" | "removed"} */ what) => (changes?.files ?? []).reduce((all, file) => all + file[what], 0);
  /** @param {number} at */
  const show = (at) => {
    const file = document.getElementById(`change-${at}`);
    file?.scrollIntoView({ block: "start" });
    file?.focus({ preventScroll: true });
  };
  return html`<main class="plain changes" id="main" tabindex="-1">
    <header class="bar"><a class="back" href=${sessionPlace(id)} aria-label="The conversation"></a>
      <div class="name"><h1>Changes</h1><p>${called(row?.title)}</p></div></header>
    <nav class="filters" aria-label="Filter">
      <a class="button" href=${place} aria-current=${seq ? undefined : "page"}>Whole session</a>
      <a class="button" href=${`${place}@1`} aria-current=${seq === 1 ? "page" : undefined}>Since the last prompt</a>
      ${turns.length > 1 && html`<select aria-label="Turn" value=${seq > 1 ? seq : ""} onChange=${(/** @type {On<HTMLSelectElement>} */ event) => go(event.target.value ? `${place}@${event.target.value}` : place)}>
        <option value="">By turn</option>${turns.map((each) => html`<option value=${seqOf(each.turn)} selected=${seq === seqOf(each.turn)}>${each.turn}. ${line(each.text || "a prompt", CUT.short)}</option>`)}</select>`}</nav>
    ${problem && html`<p class="empty" role="alert">${line(problem)}</p>`}
    ${!changes && !problem && html`<p class="empty aside">Loading changes…</p>`}
    ${changes?.files.length === 0 && html`<p class="empty">${changes.kept ? `No ${changes.notes.length ? "kept " : ""}files changed` : "The agent reported no changed files"}${seq > 1 ? " in this turn" : seq ? " since the last prompt" : ""}.</p>`}
    ${changes && changes.files.length > 0 && html`
      <p class="total">${counted(changes.files.length + changes.more, "file")} <${Counts} added=${sum("added")} removed=${sum("removed")} /></p>
      <ul class="files">${changes.files.map((file, at) => html`<li key=${at}><button type="button" onClick=${() => show(at)}>
        <span class="path">${pathLine(file.path)}</span> <${Counts} ...${file} />${!file.patch && html` <span class="aside">not shown</span>`}</button></li>`)}</ul>
      ${changes.more > 0 && html`<p class="aside">${counted(changes.more, "more file")} in <code>acphold diff</code>.</p>`}
      ${changes.files.map((file, at) => html`<${FileView} key=${`${turn} ${at} ${file.path}`} id=${id} at=${at} file=${file} prompts=${changes.prompts} whole=${() => read(address, { turn: changes.turn ?? "", path: file.path })} />`)}`}
    ${changes && (changes.kept ? changes.notes : changes.files).length > 0 && html`<p class="aside">${changes.kept
      ? changes.notes.map((note, at) => html`${at > 0 && html`<br />`}${line(note, CUT.long)}`)
      : "This view shows the edits that the agent reported. It does not show changes made by commands."}</p>`}
  </main>`;
}

/** @param {{added: number, removed: number}} props */
export const Counts = ({ added, removed }) =>
  html`<span class="sum">${added > 0 && html`<ins aria-label=${counted(added, "line added", "lines added")}>+${added}</ins>`} ${removed > 0 && html`<del aria-label=${counted(removed, "line removed", "lines removed")}>−${removed}</del>`}</span>`;

/** @param {{id: string, at: number, file: File, prompts: Prompt[], whole: () => Promise<FileChanges>}} props */
function FileView({ id, at, file, prompts, whole }) {
  const isWide = useWide();
  const [all, setAll] = useState(/** @type {File | null} */ (null));
  const [shown, setShown] = useState(FIRST);
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const { patch, gap, rest } = all ?? file;
  const name = pathLine(file.path);
  // Lines of which nobody knows where they stand have no numbers.
  const every = useMemo(() => patchLines(patch, gap === null), [patch, gap]);
  useEffect(() => setAll(null), [file.patch, file.rest]);
  const wanted = Math.min(every.length, shown);
  const lines = every.slice(0, useSome(wanted, AT_ONCE));
  const left = every.length - wanted + rest;
  const more = async () => {
    setProblem("");
    if (rest > 0 && !all) {
      setBusy(true);
      try {
        setAll((await whole()).files.find((each) => each.patch) ?? file);
      } catch (error) {
        setProblem(/** @type {Error} */ (error).message);
      }
      setBusy(false);
    }
    setShown(shown + MORE);
  };
  const after = file.turns.map((turn) => prompts.find((each) => each.turn === turn)).filter((each) => each !== undefined);
  return html`<section class="change" aria-labelledby=${`change-${at}`}>
    <header><h2 id=${`change-${at}`} tabindex="-1"><span class="path">${name}</span></h2> <${Counts} ...${file} />
      ${after.length > 0 && html`<ul class="after">${after.slice(-PROMPTS).map((each) => html`<li>After <a href=${sessionPlace(id, each.seq)}>${each.text ? `“${line(each.text, CUT.brief)}”` : `prompt ${each.turn}`}</a></li>`)}
        ${after.length > PROMPTS && html`<li class="aside">and ${counted(after.length - PROMPTS, "earlier prompt")}</li>`}</ul>`}</header>
    ${gap && html`<p class="note">${patch ? "Line numbers unknown" : "Not shown"}: ${gap}.</p>`}
    ${lines.length > 0 && html`<figure class="diff" aria-busy=${lines.length < wanted || undefined}>
      <div class="lines" tabindex="0" role="group" aria-label=${`Changes in ${name}`}>
        ${isWide && every.some((each) => each.sign === "-") ? html`<${TwoColumns} lines=${lines} />` : html`<${OneColumn} lines=${lines} />`}
      </div></figure>`}
    ${problem && html`<p class="bad" role="alert">${line(problem)}</p>`}
    ${every.length > shown || (rest > 0 && !all)
      ? html`<button type="button" class="quiet" disabled=${isBusy} onClick=${more}>${left > MORE ? `Show ${MORE.toLocaleString()} of ${left.toLocaleString()} more lines` : `Show all, ${counted(left, "more line")}`}</button>`
      : rest > 0 && html`<p class="aside">${counted(rest, "more line")} in <code>acphold diff</code>.</p>`}
  </section>`;
}
