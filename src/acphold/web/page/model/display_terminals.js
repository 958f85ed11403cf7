// Terminals that an agent only shows: it names one in a tool call's content, and tells in `_meta` of
// the call's updates what that printed. The rules are those of `history/display_terminals.py`.

const PRINTED = ["terminal_output", "terminal_output_delta"];
const MEMBERS = ["terminal_info", ...PRINTED, "terminal_exit"];

/** Characters that are kept of a terminal's text, its last ones. The core counts them as bytes of JSON. */
const MOST_TEXT = 48 * 1024;

/** How many terminals of one call are told apart; of more, the newest. */
const MOST = 16;

/** What a text begins with whose beginning was dropped. */
const CUT = "…\n";

/**
 * @typedef {{kept: string, isCut: boolean, saysAll: boolean}} Shown  `saysAll`: an earlier page has no more of it
 * @typedef {Map<string, Shown>} Terminals  by their ids
 */

/** Take in what a `_meta` says of them; what is left of it, undefined for nothing. @param {Terminals} terminals @param {Record<string, Received>} meta */
export function takeTerminals(terminals, meta) {
  const rest = { ...meta };
  for (const name of MEMBERS) {
    const told = rest[name];
    const id = told?.terminal_id;
    if (typeof id !== "string" || !id) continue;
    delete rest[name];
    let shown = terminals.get(id);
    if (!shown) {
      terminals.set(id, (shown = { kept: "", isCut: false, saysAll: false }));
      if (terminals.size > MOST) terminals.delete([...terminals.keys()][0]);
    }
    if (!PRINTED.includes(name)) continue;
    const data = typeof told.data === "string" ? told.data : "";
    if (told["acphold/cut"] === true) Object.assign(shown, { kept: "", isCut: true, saysAll: true });
    print(shown, told["acphold/cut"] === true && data.startsWith(CUT) ? data.slice(CUT.length) : data);
  }
  return Object.keys(rest).length > 0 ? rest : undefined;
}

/** @param {Shown} shown @param {string} text */
function print(shown, text) {
  shown.kept += text;
  if (shown.kept.length <= 2 * MOST_TEXT) return;
  shown.kept = shown.kept.slice(-MOST_TEXT);
  shown.isCut = true;
}

/** Put what an earlier page has of them in front. @param {Terminals} older @param {Terminals} later */
export function joinTerminals(older, later) {
  for (const [id, shown] of later) {
    const known = older.get(id);
    if (!known || shown.saysAll) older.set(id, shown);
    else {
      known.isCut ||= shown.isCut;
      print(known, shown.kept);
    }
  }
}

/** What a terminal printed, "" while it has not printed anything. @param {Shown} shown */
export function printed({ kept, isCut }) {
  if (!isCut) return kept;
  const begin = kept.indexOf("\n") + 1;
  return CUT + (begin > 0 && begin < kept.length ? kept.slice(begin) : kept);
}

/** A call's content with the text of each terminal in its place. @param {Received[]} content @param {Terminals} terminals */
export function withTexts(content, terminals) {
  return content.map((each) => {
    const shown = each?.type === "terminal" ? terminals.get(each.terminalId) : undefined;
    const text = shown && printed(shown);
    return text ? { type: "content", content: { type: "text", text } } : each;
  });
}
