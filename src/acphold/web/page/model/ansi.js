// What a terminal showed, as runs of text in one colour each (ECMA-48, SGR); the rest is dropped.

/** @typedef {{text: string, look: string, colour?: string, ground?: string}} Run */

const SEQUENCE =
  /\u001b(?:\[([0-9;:?<=>!]*)[ -/]*([@-~])|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[()#][ -~]|[ -~])|\u0008|\r(?!\n)/g;

/** Characters of a piece, and of the longest line that is not cut. */
const PIECE = 8000;
const LONGEST_LINE = 60_000;

/** Where the pieces of a text begin and end, at ends of lines: they stay where they are when it grows. @param {string} text @returns {[number, number][]} */
export function cuts(text) {
  /** @type {[number, number][]} */
  const found = [];
  for (let begin = 0, end = 0; begin < text.length; begin = end) {
    const line = text.slice(begin + PIECE - 1, begin + LONGEST_LINE).indexOf("\n");
    end = line < 0 ? begin + LONGEST_LINE : begin + PIECE + line;
    found.push([begin, Math.min(end, text.length)]);
  }
  return found;
}

/** The colours that hold at a place, as the text has set them in the piece before. @param {string} text @param {number} at */
export function setBefore(text, at) {
  const before = text.slice(Math.max(0, at - LONGEST_LINE), at);
  return (before.slice(before.lastIndexOf("\u001b[0m") + 1).match(/\u001b\[[0-9;:]*m/g) ?? []).join("");
}

/** @param {string} text @returns {Run[]} */
export function runs(text) {
  /** @type {Run[]} */
  const found = [];
  let state = fresh();
  let at = 0;
  /** @param {string} piece */
  const add = (piece) => {
    // What is written over a line from its beginning stands in its place.
    const last = piece.lastIndexOf("\r") + 1;
    if (piece.slice(last)) found.push({ ...shown(state), text: piece.slice(last) });
  };
  for (const match of text.matchAll(SEQUENCE)) {
    add(text.slice(at, match.index));
    at = match.index + match[0].length;
    if (match[0] === "\r") overwrite(found);
    else if (match[2] === "m") state = changed(state, match[1]);
  }
  add(text.slice(at));
  return found;
}

/** Drop the line that the next text is written over, as a bar of progress does. @param {Run[]} found */
function overwrite(found) {
  for (let last = found.at(-1); last; last = found.at(-1)) {
    const end = last.text.lastIndexOf("\n");
    if (end >= 0) {
      last.text = last.text.slice(0, end + 1);
      return;
    }
    found.pop();
  }
}

/** @typedef {{bold: boolean, dim: boolean, italic: boolean, under: boolean, reverse: boolean, fore: string, back: string}} State */

/** @returns {State} */
const fresh = () => ({ bold: false, dim: false, italic: false, under: false, reverse: false, fore: "", back: "" });

/** @param {State} state @param {string} parameters @returns {State} */
function changed(state, parameters) {
  const next = { ...state };
  const codes = parameters.split(/[;:]/).map(Number);
  for (let at = 0; at < codes.length; at++) {
    const code = codes[at];
    if (code === 0) Object.assign(next, fresh());
    else if (code === 1) next.bold = true;
    else if (code === 2) next.dim = true;
    else if (code === 3) next.italic = true;
    else if (code === 4) next.under = true;
    else if (code === 7) next.reverse = true;
    else if (code === 22) next.bold = next.dim = false;
    else if (code === 23) next.italic = false;
    else if (code === 24) next.under = false;
    else if (code === 27) next.reverse = false;
    else if (code >= 30 && code <= 37) next.fore = `c${code - 30}`;
    else if (code >= 90 && code <= 97) next.fore = `c${code - 82}`;
    else if (code >= 40 && code <= 47) next.back = `c${code - 40}`;
    else if (code >= 100 && code <= 107) next.back = `c${code - 92}`;
    else if (code === 39) next.fore = "";
    else if (code === 49) next.back = "";
    else if (code === 38 || code === 48) {
      const isByte = codes[at + 1] === 5;
      const colour = isByte ? ofNumber(codes[at + 2]) : ofParts(codes.slice(at + 2, at + 5));
      at += isByte ? 2 : 4;
      if (code === 38) next.fore = colour;
      else next.back = colour;
    }
  }
  return next;
}

/** One of the 256. @param {number} number */
function ofNumber(number) {
  if (!(number >= 0 && number < 256)) return "";
  if (number < 16) return `c${number}`;
  if (number >= 232) return ofParts(Array(3).fill(8 + (number - 232) * 10));
  const steps = [0, 95, 135, 175, 215, 255];
  const rest = number - 16;
  return ofParts([steps[Math.floor(rest / 36)], steps[Math.floor(rest / 6) % 6], steps[rest % 6]]);
}

/** @param {number[]} parts */
function ofParts(parts) {
  const [red, green, blue] = parts.map((part) => Math.min(255, Math.max(0, part || 0)));
  return `rgb(${red ?? 0}, ${green ?? 0}, ${blue ?? 0})`;
}

/** @param {State} state @returns {Omit<Run, "text">} */
function shown(state) {
  const look = ["bold", "dim", "italic", "under", "reverse"].filter((name) => state[/** @type {keyof State} */ (name)]);
  if (state.fore.startsWith("c")) look.push(`fore-${state.fore}`);
  if (state.back.startsWith("c")) look.push(`back-${state.back}`);
  return {
    look: look.join(" "),
    colour: state.fore.startsWith("rgb") ? state.fore : undefined,
    ground: state.back.startsWith("rgb") ? state.back : undefined,
  };
}
