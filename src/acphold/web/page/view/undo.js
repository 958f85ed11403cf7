// What was just done to sessions, and the way back: a bar with "Undo"; and what can be done to several.
import { called, counted, line, sentence } from "../model/text.js";
import { asked, askedWhich } from "./dialog.js";
import { html } from "./html.js";
import { sessionPlace } from "./places.js";
import { treesOf } from "./work_tree.js";

/** @typedef {import("../model/desk.js").Desk} Desk */

/** How long it is shown, and a deletion can be undone. */
const GRACE_MS = 10_000;

/** Most sessions whose work trees are looked at before they are deleted together. */
const TREES = 20;

/** The first of the sessions that something was done to together last: it has the keyboard once that is undone. */
export const acted = { id: "" };

/**
 * Show for a while what was done, in place of what was said `about` the same; `undo` stays until something
 * else is done, a brief one only as long as it is shown.
 * @param {Desk} desk @param {string} words @param {() => void} [undo] @param {string} [about] @param {boolean} [isBrief]
 */
export function notify(desk, words, undo, about, isBrief = false) {
  const notice = { words, undo, about };
  desk.notices.value = [...desk.notices.value.filter((each) => !about || each.about !== about), notice];
  if (undo) {
    desk.deed = isBrief ? undefined : notice;
    acted.id = "";
  }
  setTimeout(() => close(desk, notice), GRACE_MS);
}

/** @param {Desk} desk @param {import("../model/desk.js").Notice} notice */
function close(desk, notice) {
  desk.notices.value = desk.notices.value.filter((each) => each !== notice);
}

/** @param {Desk} desk @param {import("../model/desk.js").Notice} notice */
function undo(desk, notice) {
  close(desk, notice);
  if (desk.deed === notice) desk.deed = undefined;
  notice.undo?.();
}

/** Undo what is shown last, or else was done last. @param {Desk} desk */
export function undoLast(desk) {
  const notice = desk.notices.peek().findLast((each) => each.undo) ?? desk.deed;
  if (notice) undo(desk, notice);
  else notify(desk, "Nothing to undo.", undefined, "nothing");
}

/** Sessions in a sentence: the title of one, or how many. @param {string[]} ids @param {string} title */
const named = (ids, title) => (ids.length === 1 ? `“${called(title)}” ` : `${counted(ids.length, "session")} `);

/** @param {string[]} ids */
const are = (ids) => (ids.length === 1 ? "is" : "are");

/**
 * Ask if sessions are to be deleted, and if their work trees go, too; true if they are.
 * @param {Desk} desk @param {string[]} ids @param {string} title @param {boolean} mayHaveTrees
 */
export async function askToRemove(desk, ids, title, mayHaveTrees = true) {
  const [only, them] = [ids.length === 1, `${counted(ids.length, "session")} and their whole conversations`];
  const isAsked = mayHaveTrees && ids.length <= TREES;
  const trees = isAsked ? await treesOf(desk, ids) : [];
  const stay = isAsked || !mayHaveTrees ? "" : " Their work trees stay.";
  const text = `This deletes ${only ? `“${called(title)}” and its whole conversation` : them}. You can undo it for ten seconds.${stay}`;
  const isOne = trees.length === 1;
  const checks = trees.map(({ words }) => (isOne ? `Also delete its work tree ${words}` : words));
  const all = isOne ? undefined : `Also delete ${trees.length} work trees and their branches:`;
  const words = { title: only ? "Delete this session?" : `Delete ${counted(ids.length, "session")}?`, text, action: "Delete", isBad: true };
  const answer = checks.length > 0 ? await askedWhich({ ...words, checks, all }) : (await asked(words)) === null ? null : [];
  if (answer !== null) remove(desk, ids, title, new Map(trees.filter((_, place) => answer.includes(place)).map(({ id, mark }) => [id, mark])));
  return answer !== null;
}

/**
 * Take sessions out of the list, and delete them unless somebody wants them back within ten seconds. A
 * page that is left before then deletes nothing.
 * @param {Desk} desk @param {string[]} ids @param {string} title @param {Map<string, string>} [trees]  the marks of work trees that go, too
 */
function remove(desk, ids, title, trees) {
  desk.hide(ids, true);
  const due = setTimeout(() => {
    for (const id of ids) {
      const mark = trees?.get(id);
      desk.server.call("session/delete", { sessionId: id, ...(mark && { _meta: { "acphold/worktree": mark } }) }).then((told) => {
        const stays = told?._meta?.["acphold/stays"];
        if (stays) notify(desk, `${sentence(line(stays))} stays.`);
      }, (error) => {
        desk.hide([id], false);
        notify(desk, `“${called(desk.rows.peek().get(id)?.title ?? title)}” was not deleted. ${error.message}`);
      });
    }
  }, GRACE_MS);
  notify(desk, `${named(ids, title)}will be deleted in ten seconds.`, () => {
    clearTimeout(due);
    desk.hide(ids, false);
  }, undefined, true);
}

/** @param {Desk} desk @param {string[]} ids @param {string} title @param {boolean} [isBack]  out of the archive again */
export async function archive(desk, ids, title, isBack = false) {
  await Promise.all(ids.map((id) => desk.server.call(isBack ? "session/unarchive" : "session/archive", { sessionId: id })));
  const undo = () => void archive(desk, ids, title, !isBack).catch((error) => notify(desk, `${named(ids, title)}could not be ${isBack ? "archived again" : "unarchived"}. ${error.message}`));
  notify(desk, `${named(ids, title)}${are(ids)} ${isBack ? "back in the list" : "archived"}.`, undo, `archive ${ids.toSorted()}`);
}

/** Give a session tags; what takes that back, and leaves what others have done meanwhile. @param {Desk} desk @param {string} id @param {string[]} before @param {string[]} wanted */
export async function putTags(desk, id, before, wanted) {
  const put = (/** @type {string[]} */ tags) => desk.server.call("_acphold/mark", { sessionId: id, tags });
  const tags = /** @type {string[]} */ ((await put(wanted)).tags);
  return () => {
    const now = desk.rows.peek().get(id)?.tags ?? tags;
    const taken = before.filter((each) => !tags.includes(each));
    return put([...now.filter((each) => before.includes(each) || !tags.includes(each)), ...taken]);
  };
}

/** The label of a field for tags. */
export const TAGS = "Tags, with spaces between them; each is one word (needs-review)";

/** @param {string} words */
export const tagsIn = (words) => words.split(/[\s,]+/).filter(Boolean);

/** @param {string[]} tags */
export const hashed = (tags) => tags.map((each) => `#${each.replace("#", "").toLowerCase()}`).join(" ");

/** Add tags to sessions. @param {Desk} desk @param {import("../wire/pages.js").Row[]} rows @param {string[]} words */
async function tag(desk, rows, words) {
  const undos = await Promise.all(rows.map((row) => {
    const before = (desk.rows.peek().get(row.sessionId) ?? row).tags ?? [];
    return putTags(desk, row.sessionId, before, [...before, ...words]);
  }));
  const undo = () => void Promise.all(undos.map((each) => each())).then(() => notify(desk, "Undone."), (error) => notify(desk, `The tags stay. ${error.message}`));
  notify(desk, `${counted(rows.length, "session")} ${rows.length === 1 ? "is" : "are"} tagged ${hashed(words)}.`, undo);
}

/** The button that takes back what was done last, while it can be. @returns {HTMLElement | undefined} */
const undoing = () => [.../** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(".undo [aria-keyshortcuts]"))].at(-1);

/** What can be done with several sessions at once, which are archived or not. @param {{desk: Desk, isArchive: boolean}} props */
export function Chosen({ desk, isArchive }) {
  const rows = [...(desk.chosen.value?.values() ?? [])];
  const ids = rows.map((row) => row.sessionId);
  const title = rows[0]?.title ?? "";
  /** @param {() => unknown} what */
  const act = (what) => async () => {
    const isByKey = document.activeElement?.matches(":focus-visible");
    try {
      if ((await what()) === null) return;
      desk.chosen.value = null;
      acted.id = isByKey ? ids[0] : "";
      if (isByKey) setTimeout(() => undoing()?.focus());  // the button that had the keyboard is gone
    } catch (error) {
      notify(desk, /** @type {Error} */ (error).message);
    }
  };
  const tagAll = async () => {
    const words = await asked({ title: `Tag ${counted(ids.length, "session")}`, label: TAGS, action: "Add" });
    return words && tag(desk, rows, tagsIn(words));
  };
  const removeAll = async () => {
    return (await askToRemove(desk, ids, title)) ? undefined : null;
  };
  /** The row that has the keyboard keeps it. */
  const leave = () => {
    const id = /** @type {HTMLElement | null | undefined} */ (document.activeElement?.closest("label.session"))?.dataset.id;
    desk.chosen.value = null;
    if (id) setTimeout(() => /** @type {HTMLElement | null} */ (document.querySelector(`.home a.session[href="${sessionPlace(id)}"]`))?.focus());
  };
  const isNone = ids.length === 0;
  return html`<div class="chosen" role="toolbar" aria-label="Selected sessions"><span>${ids.length} selected</span>
    <button type="button" disabled=${isNone} onClick=${act(() => archive(desk, ids, title, isArchive))}>${isArchive ? "Unarchive" : "Archive"}</button>
    <button type="button" disabled=${isNone} onClick=${act(tagAll)}>Tag…</button>
    <button type="button" class="bad" disabled=${isNone} onClick=${act(removeAll)}>Delete</button>
    <button type="button" class="quiet leave" aria-label="Cancel" title="Cancel (Esc)" aria-keyshortcuts="Escape" onClick=${leave}>×</button></div>`;
}

/** What was done of late. @param {{desk: Desk}} props */
export function Undo({ desk }) {
  return desk.notices.value.map((notice) => {
    return html`<p key=${notice}><span>${notice.words}</span><button type="button" aria-keyshortcuts=${notice.undo && "u"} onClick=${() => undo(desk, notice)}>${notice.undo ? "Undo" : "Close"}</button></p>`;
  });
}
