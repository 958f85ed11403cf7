// What a request for permission shows: see `presentation.permissions`, which makes the same of it for
// the terminal and for the inbox. tests/presentation/permissions.json has cases that both pass.
import { changes } from "./diffs.js";
import { isShown } from "./patches.js";
import { wordTable, unfenced, visible } from "./text.js";

/** @typedef {{name: string, text: string, part?: "what" | "where"}} Argument  `part`: what will happen, where, or anything else */
/** @typedef {{optionId: string, kind: string, words: string, name: string}} Offer */
/** @typedef {{title: string, arguments: Argument[], options: Offer[], content: number[], outside?: string[]}} Shows  `content`: places of what is drawn of the call's content; `outside`: folders outside of the session's */

/** The names by which agents say what will happen, and where. @type {Record<string, "what" | "where">} */
const PARTS = Object.assign(Object.create(null), { command: "what", cmd: "what", script: "what", cwd: "where", workdir: "where", path: "where", file_path: "where", filePath: "where", filepath: "where", directory: "where" });
const ORDER = ["what", "where", undefined];

/** Words of an agent's name for an answer that say no more than that it allows, or rejects. */
const SAME = wordTable({ allow: " accept allow approve it ok proceed run the this yes ", reject: " cancel decline deny it no reject the this " });

/** Whether the agent's name for an answer says more than its effect. @param {Offer} offer */
export function saysMore({ kind, name }) {
  const [effect, howLong] = kind.split("_");
  const same = `${SAME[effect] ?? " "}${howLong} `;
  return name.toLowerCase().replaceAll(",", " ").split(/\s+/).some((word) => word && !same.includes(` ${word} `));
}

/** Characters of a title that was cut off, at least, by which a longer text is known. */
const SURE = 12;

const OFFERED = wordTable({
  allow_once: "allow once",
  allow_always: "allow always",
  reject_once: "reject once",
  reject_always: "reject always",
});

/** The call that is asked about: what the request says of it, over what was said before. @param {Received} params @param {Received} [before] */
export function callOf(params, before) {
  const told = Object.entries(params.toolCall ?? {}).filter(([, value]) => value !== null);
  return { ...before, ...Object.fromEntries(told) };
}

/** @param {Received} params @param {Received} call @returns {Shows} */
export const shown = (params, call) => ({
  ...saidOnce(call),
  options: (params.options ?? []).map((/** @type {Received} */ each) => {
    const kind = asString(each?.kind);
    const words = OFFERED[kind] ?? `of the unknown kind ${kind}`;
    return { optionId: asString(each?.optionId), kind, words, name: asString(each?.name) };
  }),
});

/** Title, arguments and places in the content, and nothing twice. @param {Received} call @returns {Omit<Shows, "options">} */
function saidOnce(call) {
  const given = argumentsOf(call);
  const input = isRecord(call.rawInput) ? call.rawInput : { "": call.rawInput };
  /** Texts that an argument shows as they are, and its name. @type {Map<string, string>} */
  const whole = new Map();
  for (const [name, value] of Object.entries(input).filter((each) => given.some(({ name }) => name === each[0]))) {
    for (const text of isWords(value) ? value : [value]) {
      if (typeof text === "string" && text.trim() && !whole.has(text)) whole.set(text, name);
    }
  }
  const told = new Set([...whole.keys()].map(bare));
  const title = asString(call.title);
  const shownTitle = isTold(bare(title), told) || [fileOf(diffsOf(call.content)), ...foldersOutside(call)].includes(title) ? "" : title;
  told.add(bare(title));
  const content = Array.isArray(call.content) ? call.content : [];
  const outside = foldersOutside(call);
  return {
    title: shownTitle,
    ...(outside.length > 0 && { outside }),
    arguments: given.map((each) => {
      const without = withoutTold(input[each.name], whole, each.name);
      return without === undefined ? each : { ...each, text: spelled(without) };
    }).sort((a, b) => ORDER.indexOf(a.part) - ORDER.indexOf(b.part)),
    content: [...content.keys()].filter((at) => {
      const text = content[at]?.content?.text;
      return typeof text !== "string" || !told.has(bare(unfenced(text)));
    }),
  };
}

/** A value with a reference for each text of several words that another argument shows; undefined where there is none. @param {Received} value @param {Map<string, string>} whole @param {string} name */
function withoutTold(value, whole, name) {
  let isOther = false;
  const told = JSON.stringify(value ?? null, (_, part) => {
    const other = typeof part === "string" && part.includes(" ") ? whole.get(part) : undefined;
    if (other === undefined || other === name) return part;
    isOther = true;
    return `(as in ${other})`;
  });
  return isOther ? JSON.parse(told) : undefined;
}

/** The folders outside of the session's that it is for. @param {Received} call @returns {string[]} */
const foldersOutside = (call) => outsideOf(call)[0];

/** The same, and the names of the arguments that say no more than that. @param {Received} call @returns {[string[], string[]]} */
function outsideOf({ kind, title, rawInput }) {
  const { parentDir, directories, patterns } = (kind ?? "other") === "other" && isRecord(rawInput) ? rawInput : /** @type {Received} */ ({});
  if (parentDir && typeof parentDir === "string" && parentDir === title) return [[parentDir], ["parentDir"]];
  const isAll = isWords(directories) && directories.length > 0 && directories.every(Boolean) && JSON.stringify(directories.map((each) => `${each}/*`)) === JSON.stringify(patterns);
  return isAll ? [directories, ["directories", "patterns"]] : [[], []];
}

/** All that a call is given. @param {Received} call @returns {Argument[]} */
export function argumentsOf(call) {
  const { rawInput, title, content } = call;
  if (rawInput === undefined || rawInput === null) return [];
  if (!isRecord(rawInput)) return [{ name: "", text: spelled(rawInput) }];
  const found = Object.entries(rawInput).map(([name, value]) => ({ name, text: spelled(value) }));
  if (found.length === 1 && found[0].text === asString(title).replace(/^`+|`+$/g, "")) return [];
  const diffs = diffsOf(content);
  const inDiff = shownByDiffs(diffs);
  const file = fileOf(diffs);
  const [, outside] = outsideOf(call);
  const isSaid = (/** @type {Argument} */ { name, text }) => outside.includes(name) || (text === file && PARTS[name] === "where") || (/^(diff|patch)$/.test(name) && isShown(text, diffs));
  return found.filter((each) => !isSaid(each)).map(({ name, text }) => ({ name, text: inDiff.get(unended(text)) ?? text, ...(PARTS[name] && { part: PARTS[name] }) }));
}

/** @param {Received} content @returns {Received[]} */
const diffsOf = (content) => (Array.isArray(content) ? content.filter((each) => each?.type === "diff") : []);

/** The file of these diffs, if it is one: it stands above them. @param {Received[]} diffs */
const fileOf = (diffs) => (diffs.every(({ path }) => path === diffs[0].path) ? diffs[0]?.path : undefined);

/** Texts of many lines that a diff shows whole, and what to say in their place. @param {Received[]} diffs */
function shownByDiffs(diffs) {
  /** @type {Map<string, string>} */
  const found = new Map();
  for (const diff of diffs) {
    const { lines, isCut } = changes(diff);
    if (isCut) continue;
    for (const [what, sign, text] of [["old", "-", diff.oldText], ["new", "+", diff.newText]]) {
      if (typeof text !== "string" || !unended(text).includes("\n")) continue;
      const seen = lines.filter((each) => each.sign === sign || each.sign === " ").map((each) => each.text);
      if (seen.join("\n") === visible(text).replace(/\n$/, "")) found.set(unended(text), `(all of the diff's ${what} lines)`);
    }
  }
  return found;
}

/** Whether one of these texts says what a title says, or the title is its beginning. @param {string} title @param {Set<string>} told */
function isTold(title, told) {
  const cut = /(…|\.\.\.)$/.exec(title);
  const begun = plain(cut ? title.slice(0, cut.index) : title);
  return told.has(title) || (cut !== null && begun.length >= SURE && [...told].some((text) => plain(text).startsWith(begun)));
}

/** @param {string} text */
const plain = (text) => text.replace(/\s+/g, " ").trim();

/** Without the spaces and backticks around it. @param {string} text */
const bare = (text) => text.trim().replace(/^`+|`+$/g, "").trim();

/** @param {string} text */
const unended = (text) => text.replace(/\n+$/, "");

/** @param {unknown} value */
const asString = (value) => (typeof value === "string" ? value : "");

/** @param {unknown} value @returns {string} */
function spelled(value) {
  if (typeof value === "string") return value;
  return isWords(value) ? value.join(" ") : JSON.stringify(value);
}

/** @param {unknown} value @returns {value is Record<string, Received>} */
const isRecord = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** @param {unknown} value @returns {value is string[]} */
const isWords = (value) => Array.isArray(value) && value.every((each) => typeof each === "string");
