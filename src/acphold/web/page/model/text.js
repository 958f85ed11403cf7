// Texts of others, made fit to be shown: nothing in them moves what stands beside it. The tables are
// those of `acp_wire.visible_text`.
import { HIDDEN, INEXACT, IN_PLACE } from "./tables.js";

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
export function line(text, most = 300) {
  const whole = visible(asText(text).slice(0, most * 4)).replace(/\s+/g, " ").trim();
  return whole.length > most ? `${whole.slice(0, most - 1)}…` : whole;
}

/** What a session is called, without marks of Markdown. @param {string | null | undefined} title */
export const called = (title) => line(title, 200).replace(/[`*]/g, "") || "New session";

/** An agent, without the scope of the package that it comes in. @param {unknown} name */
export const agentName = (name) => line(asText(name).replace(/^@[^/]+\//, ""), 40);

/** Agents put a fence around what a command showed. @param {string} text */
export function unfenced(text) {
  const found = /^\s*(```+)[^\n`]*\n([\s\S]*?)\n?\1\s*$/.exec(text.slice(0, 2_000_000));
  return found ? found[2] : text;
}

/** The text that came out of a call, where agents agree on what it is called. @param {Received} raw @returns {string | undefined} */
export const saidIn = (raw) => [raw, raw?.output, raw?.formatted_output, raw?.message, raw?.error?.message, raw?.error, raw?.stderr].find((each) => typeof each === "string" && each);

/** The last part of a path, and the one before it. @param {string} path */
export function shortPath(path) {
  return line(path.split("/").filter(Boolean).slice(-2).join("/") || path, 80);
}

/** The last part of a path. @param {string} path */
export function baseName(path) {
  return line(path.split("/").filter(Boolean).at(-1) ?? path, 60);
}

/** @param {number} bytes */
export function size(bytes) {
  if (bytes < 1000) return `${bytes} bytes`;
  return bytes < 1e6 ? `${Math.round(bytes / 1000)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

/** @param {number} number @param {string} one @param {string} [many] */
export const counted = (number, one, many = `${one}s`) => `${number} ${number === 1 ? one : many}`;
