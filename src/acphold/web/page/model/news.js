// What happened since somebody last looked.
import { standing } from "./rows.js";

/** @typedef {import("../wire/pages.js").Row} Row */

/** Most sessions with news: see `web.reports`. */
const MOST = 20;

/** What failed first, then what is done, then what was cancelled. What asks is asked above. @param {Row[]} all  the one that changed last first */
export function news(all) {
  const order = ["unseen failed", "unseen", "unseen stopped"];
  const rank = (/** @type {Row} */ row) => order.indexOf(standing(row)[0]);
  return all.filter((row) => !row.openQuestions?.length && !row.byProgram && rank(row) >= 0).sort((a, b) => rank(a) - rank(b)).slice(0, MOST);
}
