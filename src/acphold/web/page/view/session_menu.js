// What can be done with a session as a whole.
import { useRef, useState } from "preact/hooks";
import { exported } from "../model/exports.js";
import { copied } from "./copy.js";
import { asked } from "./dialog.js";
import { continueInCopy, hasFilesNow, isInTree, useKept } from "./copies.js";
import { html } from "./html.js";
import { go, here } from "./places.js";
import { archive, askToRemove, hashed, notify, putTags, TAGS, tagsIn } from "./undo.js";
import { bringBack } from "./work_tree.js";

/** From this session to the list, and the focus too: what had it is gone. Whoever has gone on meanwhile stays there. @param {string} id */
function toList(id) {
  if (here().id !== id) return;
  addEventListener("hashchange", () => setTimeout(() => document.getElementById("main")?.focus()), { once: true });
  go("#/");
}

/** @param {{desk: import("../model/desk.js").Desk, id: string, row: Received, title: string, session: import("../model/session.js").Session, find: () => void}} props */
export function SessionMenu({ desk, id, row, title, session, find }) {
  const menu = useRef(/** @type {HTMLElement | null} */ (null));
  const [problem, setProblem] = useState("");
  /** @param {() => unknown} what */
  const act = (what) => async () => {
    menu.current?.hidePopover();
    setProblem("");
    try {
      await what();
    } catch (error) {
      setProblem(String(/** @type {Error} */ (error).message));
    }
  };
  const rename = async () => {
    const name = await asked({ title: "Rename this session", label: "Name", value: title, action: "Rename" });
    if (!name || name === title) return;
    const put = (/** @type {string} */ to) => desk.server.call("session/set_title", { sessionId: id, title: to });
    const was = row?.title ?? title;
    const given = (await put(name))?.title ?? name;
    const undo = async () => {
      const now = desk.rows.peek().get(id)?.title ?? given;
      if (now !== given && now !== was) throw new Error("it was renamed again");
      await put(was);
    };
    notify(desk, "The session is renamed.", () => void undo().then(() => notify(desk, "Undone."), (error) => notify(desk, `It could not be undone: ${error.message}.`)), `title ${id}`);
  };
  /** @param {string} kind @param {string} words @param {() => Promise<unknown>} undo */
  const marked = (kind, words, undo) => notify(desk, words, () => void undo().then(() => notify(desk, "Undone."), (error) => notify(desk, `It could not be undone: ${error.message}`)), `${kind} ${id}`);
  const pin = async () => {
    const put = (/** @type {boolean} */ pinned) => desk.server.call("_acphold/mark", { sessionId: id, pinned });
    const was = Boolean(row?.pinned);
    await put(!was);
    marked("pin", was ? "The session is no longer pinned." : "The session is pinned.", () => put(was));
  };
  const tag = async () => {
    const before = row?.tags ?? [];
    const words = await asked({ title: "Tag this session", label: TAGS, value: before.join(" "), action: "Save", mayBeEmpty: true });
    if (words === null) return;
    const tags = tagsIn(words);
    const undo = await putTags(desk, id, before, tags);
    marked("tags", tags.length > 0 ? `Tagged ${hashed(tags)}.` : "The session has no tags now.", undo);
  };
  const putAway = async () => {
    await archive(desk, [id], title, row?.archived);
    if (!row?.archived) toList(id);
  };
  const throwAway = async () => {
    if (await askToRemove(desk, [id], title, isInTree(session))) toList(id);
  };
  useKept(desk, session, row);
  const isOurs = session.permits("manage");
  /** As menus are gone through: what is typed in one is the beginning of an item. @param {KeyboardEvent} event */
  const onKey = (event) => {
    const { key, ctrlKey, metaKey, altKey } = event;
    const items = /** @type {HTMLElement[]} */ ([...(menu.current?.querySelectorAll("button, a") ?? [])]);
    const at = items.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    const to = { ArrowDown: items[(at + 1) % items.length], ArrowUp: items.at(Math.max(at, 0) - 1), Home: items[0], End: items.at(-1) }[key];
    if (ctrlKey || metaKey || altKey || !(to || /^\S$/.test(key))) return;
    event.preventDefault();
    (to ?? [...items.slice(at + 1), ...items].find((each) => each.textContent?.toLowerCase().startsWith(key.toLowerCase())))?.focus();
  };
  return html`<div class="menu">
    <button type="button" popovertarget="session-menu" aria-label="More" aria-keyshortcuts="m">⋯</button>
    <div id="session-menu" popover="auto" ref=${menu} onKeyDown=${onKey}>
      <button type="button" onClick=${act(find)}>Find</button>
      <a class="button" href=${`#/changes/${encodeURIComponent(id)}`}>Changes</a>
      <button type="button" onClick=${act(pin)}>${row?.pinned ? "Unpin" : "Pin"}</button>
      ${isOurs && html`<button type="button" onClick=${act(tag)}>Tags…</button><button type="button" onClick=${act(rename)}>Rename</button>`}
      <button type="button" onClick=${act(() => copied(location.href))}>Copy link</button>
      ${isOurs && html`<button type="button" onClick=${act(async () => continueInCopy({ desk, session, files: { after: await hasFilesNow(desk, session, row) } }))}>Continue in a copy…</button>`}
      ${isOurs && isInTree(session) && html`<button type="button" onClick=${act(() => bringBack(desk, id))}>Merge…</button>`}
      <button type="button" onClick=${act(() => exported(id))}>Export</button>
      ${isOurs && html`<button type="button" onClick=${act(putAway)}>${row?.archived ? "Unarchive" : "Archive"}</button>
      <button type="button" class="bad" onClick=${act(throwAway)}>Delete</button>`}
    </div>
    ${problem && html`<p class="bad" role="alert">${problem}</p>`}
  </div>`;
}
