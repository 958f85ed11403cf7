// What a request for permission shows: see `presentation.permissions`, which makes the same of it for
// the terminal and for the inbox. tests/presentation/permissions.json has cases that both pass.
import { changes } from "./diffs.js";
import { visible } from "./text.js";

/** @typedef {{name: string, text: string}} Argument */
/** @typedef {{optionId: string, kind: string, words: string, name: string}} Offer */
/** @typedef {{title: string, arguments: Argument[], options: Offer[]}} Shows */

const OFFERED = /** @type {Record<string, string>} */ ({
  allow_once: "allow once",
  allow_always: "allow always",
  reject_once: "reject once",
  reject_always: "reject always",
});

/** The call that is asked about: what the request says of it, over what was said before. @param {any} params @param {any} [before] */
export function callOf(params, before) {
  const told = Object.entries(params.toolCall ?? {}).filter(([, value]) => value !== null);
  return { ...before, ...Object.fromEntries(told) };
}

/** @param {any} params @param {any} call @returns {Shows} */
export const shown = (params, call) => ({
  title: asString(call.title),
  arguments: argumentsOf(call),
  options: (params.options ?? []).map((/** @type {any} */ each) => {
    const kind = asString(each?.kind);
    const words = Object.hasOwn(OFFERED, kind) ? OFFERED[kind] : `of the unknown kind ${kind}`;
    return { optionId: asString(each?.optionId), kind, words, name: asString(each?.name) };
  }),
});

/** All that a call is given. @param {any} call @returns {Argument[]} */
export function argumentsOf({ rawInput, title, content }) {
  if (rawInput === undefined || rawInput === null) return [];
  if (typeof rawInput !== "object" || Array.isArray(rawInput)) return [{ name: "", text: spelled(rawInput) }];
  const found = Object.entries(rawInput).map(([name, value]) => ({ name, text: spelled(value) }));
  if (found.length === 1 && found[0].text === asString(title).replace(/^`+|`+$/g, "")) return [];
  const inDiff = shownByDiffs(content);
  return found.map(({ name, text }) => ({ name, text: inDiff.get(bare(text)) ?? text }));
}

/** Texts of many lines that a diff shows whole, and what to say in their place. @param {any} content */
function shownByDiffs(content) {
  /** @type {Map<string, string>} */
  const found = new Map();
  for (const diff of Array.isArray(content) ? content : []) {
    if (diff?.type !== "diff") continue;
    const { lines, isCut } = changes(diff);
    if (isCut) continue;
    for (const [what, sign, text] of [["old", "-", diff.oldText], ["new", "+", diff.newText]]) {
      if (typeof text !== "string" || !bare(text).includes("\n")) continue;
      const seen = lines.filter((each) => each.sign === sign || each.sign === " ").map((each) => each.text);
      if (seen.join("\n") === visible(text).replace(/\n$/, "")) found.set(bare(text), `(all of the diff's ${what} lines)`);
    }
  }
  return found;
}

/** @param {string} text */
const bare = (text) => text.replace(/\n+$/, "");

/** @param {unknown} value */
const asString = (value) => (typeof value === "string" ? value : "");

/** @param {unknown} value @returns {string} */
function spelled(value) {
  if (typeof value === "string") return value;
  const isWords = Array.isArray(value) && value.every((each) => typeof each === "string");
  return isWords ? value.join(" ") : JSON.stringify(value);
}
