// What happened since somebody last looked, or else what was last.
import { standing } from "./rows.js";

/** @typedef {import("../wire/pages.js").Row} Row */

/** Most sessions with news, and of others as many as are shown in all where there are fewer: see `web.reports`. */
const MOST = 20;
const IN_ALL = 8;

/** What failed first, then what is done, then what was cancelled; the others are the latest. What asks is asked above. @param {Row[]} all  the one that changed last first */
export function news(all) {
  const order = ["unseen failed", "unseen", "unseen stopped"];
  const rows = all.filter((row) => !row.openQuestions?.length && !row.byProgram);
  const rank = (/** @type {Row} */ row) => order.indexOf(standing(row)[0]);
  const found = rows.filter((row) => rank(row) >= 0).sort((a, b) => rank(a) - rank(b)).slice(0, MOST);
  const others = rows.filter((row) => rank(row) < 0).slice(0, Math.max(0, IN_ALL - found.length));
  return { news: found, others };
}
