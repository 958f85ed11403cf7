// What was just done to a session, and the way back: a bar with "Undo".
import { called } from "../model/text.js";
import { html } from "./html.js";

/** @typedef {import("../model/desk.js").Desk} Desk */

/** How long it can be undone. */
const GRACE_MS = 10_000;

/** Show for a while what was done. @param {Desk} desk @param {string} words @param {() => void} [undo] */
export function notify(desk, words, undo) {
  const notice = { words, undo };
  desk.notices.value = [...desk.notices.value, notice];
  setTimeout(() => close(desk, notice), GRACE_MS);
}

/** @param {Desk} desk @param {import("../model/desk.js").Notice} notice */
function close(desk, notice) {
  desk.notices.value = desk.notices.value.filter((each) => each !== notice);
}

/**
 * Take a session out of the list, and delete it unless somebody wants it back within ten seconds. A
 * page that is left before then deletes nothing.
 * @param {Desk} desk @param {string} id @param {string} title
 */
export function remove(desk, id, title) {
  desk.hide(id, true);
  const due = setTimeout(() => {
    desk.server.call("session/delete", { sessionId: id }).catch((error) => {
      desk.hide(id, false);
      notify(desk, `“${called(title)}” was not deleted. ${error.message}`);
    });
  }, GRACE_MS);
  notify(desk, `“${called(title)}” will be deleted in ten seconds.`, () => {
    clearTimeout(due);
    desk.hide(id, false);
  });
}

/** @param {Desk} desk @param {string} id @param {string} title @param {boolean} [isBack]  out of the archive again */
export async function archive(desk, id, title, isBack = false) {
  await desk.server.call(isBack ? "session/unarchive" : "session/archive", { sessionId: id });
  const undo = () => void archive(desk, id, title, !isBack).catch((error) => notify(desk, `“${called(title)}” could not be ${isBack ? "archived again" : "unarchived"}. ${error.message}`));
  notify(desk, `“${called(title)}” is ${isBack ? "back in the list" : "archived"}.`, undo);
}

/** What was done of late. @param {{desk: Desk}} props */
export function Undo({ desk }) {
  return desk.notices.value.map((notice) => {
    const undo = () => (close(desk, notice), notice.undo?.());
    return html`<p key=${notice}><span>${notice.words}</span><button type="button" onClick=${undo}>${notice.undo ? "Undo" : "Close"}</button></p>`;
  });
}
