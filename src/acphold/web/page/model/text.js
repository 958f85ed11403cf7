// Texts of others, made fit to be shown: nothing in them moves what stands beside it. The tables are
// those of `acp_wire.visible_text`.
import { CUT, HIDDEN, INEXACT, IN_PLACE, PATH } from "./tables.js";

/** A table that others' words may be looked up in: it has no `constructor`, nothing inherited.
 * @param {Record<string, string>} rows @returns {Record<string, string>} */
export const wordTable = (rows) => Object.assign(Object.create(null), rows);

/** A value of others as text: an agent may send an object where a text belongs, even one of which JavaScript can make no string. @param {unknown} value @returns {string} */
export const asText = (value) => (value !== null && typeof value === "object" ? JSON.stringify(value, null, 2) : String(value ?? ""));

/** Prose with hidden characters marked, but for those that belong to emoji and letters. @param {unknown} text @returns {string} */
export const visible = (text) => formed(text).replace(/\r\n?/g, "\n").replace(HIDDEN, (run, begin, whole) => {
  let shown = "";
  for (let at = begin; at < begin + run.length; ) {
    IN_PLACE.lastIndex = at;
    const [kept] = IN_PLACE.exec(whole) ?? [];
    const character = String.fromCodePoint(whole.codePointAt(at));
    shown += kept ?? mark(character);
    at += (kept ?? character).length;
  }
  return shown;
});

/** A command, a path or an argument with all of them marked. @param {unknown} text @returns {string} */
export const exact = (text) => formed(text).replace(INEXACT, mark);

/** @param {unknown} text */
const formed = (text) => asText(text).replace(/\p{Cs}/gu, "\ufffd");

/** @param {string} character */
function mark(character) {
  const code = character.codePointAt(0) ?? 0;
  const [letter, width] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
  return `\\${letter}${code.toString(16).padStart(width, "0")}`;
}

/** The same on one line. @param {unknown} text @param {number} [most] @returns {string} */
export function line(text, most = CUT.words) {
  const whole = visible(asText(text).slice(0, most * 4)).replace(/\s+/g, " ").trim();
  return whole.length > most ? `${whole.slice(0, most - 1)}…` : whole;
}

/** What a session is called, without marks of Markdown. @param {string | null | undefined} title */
export const called = (title) => line(title, CUT.title).replace(/\*\*(?=\S)(.+?)(?<=\S)\*\*|`/g, "$1") || "New session";

/** An agent, without the scope of the package that it comes in. @param {unknown} name */
export const agentName = (name) => line(asText(name).replace(/^@[^/]+\//, ""), CUT.short);

/** Agents put a fence around what a command showed. @param {string} text */
export function unfenced(text) {
  const found = /^\s*(```+)[\w+#.-]{0,20}[ \t]*\n([\s\S]*?)\n?\1\s*$/.exec(text.slice(0, 2_000_000));
  return found ? found[2] : text;
}

/** The text that came out of a call, where agents agree on what it is called. @param {Received} raw @returns {string | undefined} */
export const saidIn = (raw) => [raw, raw?.output, raw?.formatted_output, raw?.message, raw?.error?.message, raw?.error, raw?.stderr].find((each) => typeof each === "string" && each);

/** Without detours, as `presentation.blocks` has it. @param {string} path */
export function normalPath(path) {
  if (path.includes("://") || !path) return path;
  /** @type {string[]} */
  const parts = [];
  for (const part of path.split("/")) {
    if (part === ".." && parts.length > 0 && parts.at(-1) !== "..") parts.pop();
    else if (part && part !== "." && !(part === ".." && path.startsWith("/"))) parts.push(part);
  }
  return `${path.startsWith("/") ? "/" : ""}${parts.join("/")}` || ".";
}

/** A path on one line; a long one is cut in its middle. @param {unknown} path */
export function pathLine(path) {
  const whole = exact(normalPath(asText(path))).replace(/[\n\t]/g, mark);
  const [first, last] = PATH;
  return whole.length > first + last ? `${whole.slice(0, first)}…${whole.slice(-last)}` : whole;
}

/** The last part of a path, and the one before it. @param {string} path */
export function shortPath(path) {
  return line(normalPath(path).split("/").filter(Boolean).slice(-2).join("/") || path, CUT.brief);
}

/** The last part of a path. @param {string} path */
export function baseName(path) {
  return line(path.split("/").filter(Boolean).at(-1) ?? path, CUT.name);
}

/** @param {number} bytes */
export function size(bytes) {
  if (bytes < 1000) return `${bytes} bytes`;
  return bytes < 1e6 ? `${Math.round(bytes / 1000)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

/** Words as the beginning of a sentence. @param {string} words */
export const sentence = (words) => words.slice(0, 1).toUpperCase() + words.slice(1);

/** @param {number} number @param {string} one @param {string} [many] */
export const counted = (number, one, many = `${one}s`) => `${number} ${number === 1 ? one : many}`;
