// Texts of others, made fit to be shown: nothing in them moves what stands beside it.

// Characters that reorder, hide or colour what is around them: controls but for line breaks and
// tabs, marks of direction (the tricks of "Trojan Source"), invisible ones, tags.
const TREACHEROUS =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]|\udb40[\udc00-\udc7f]/g;

/** A table that others' words may be looked up in: it has no `constructor`, nothing inherited.
 * @param {Record<string, string>} rows @returns {Record<string, string>} */
export const wordTable = (rows) => Object.assign(Object.create(null), rows);

/** A value of others as text: an agent may send an object where a text belongs, even one of which JavaScript can make no string. @param {unknown} value @returns {string} */
export const asText = (value) => (value !== null && typeof value === "object" ? JSON.stringify(value, null, 2) : String(value ?? ""));

/** The text with treacherous characters written as `\u…`. @param {unknown} text @returns {string} */
export function visible(text) {
  return asText(text)
    .replace(/\r\n?/g, "\n")
    .replace(TREACHEROUS, (each) => `\\u${(each.codePointAt(0) ?? 0).toString(16).padStart(4, "0")}`);
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
