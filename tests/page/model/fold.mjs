// Folds the sequences of a file as the page does, whole and in two halves, and says where that is
// another fold than the one beside the sequence: see tests/history/fold_corpus.py.
import { readFileSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";
import { printed } from "../../../src/acphold/web/page/model/display_terminals.js";
import { Timeline } from "../../../src/acphold/web/page/model/timeline.js";

/** @param {any[]} entries */
function timelineOf(entries) {
  const timeline = new Timeline();
  for (const entry of structuredClone(entries)) timeline.addEntry(entry);
  return timeline;
}

const isText = (block) => block?.type === "text" && typeof block.text === "string";

/** @param {import("../../../src/acphold/web/page/model/timeline.js").Item[]} items @param {string} lane @param {any} children */
function told(items, lane, children) {
  const made = [];
  const place = (child) => {
    const { title = null, description = null, state = null, stopReason = null } = child.told;
    children[child.id] = [lane, title, description, state, stopReason, child.caller ?? null];
    children[child.id].push(told(child.timeline.items, child.id, children));
  };
  for (const item of items) {
    if (item.kind === "said") {
      if (item.isPart) {
        const before = made.findLast((each) => each[0] !== "end");
        before[3] += item.prose.text;
        before[4].push(...item.others);
      } else made.push(["message", item.role, item.messageId ?? null, item.prose.text, [...item.others]]);
    } else if (item.kind === "prompt") {
      const text = item.content.filter(isText).map((block) => block.text).join("");
      made.push(["message", "user", item.messageId ?? null, text, item.content.filter((block) => !isText(block))]);
    } else if (item.kind === "tool") {
      const shown = [...item.terminals].map(([id, each]) => [id, printed(each)]).filter(([, text]) => text);
      made.push(["tool", item.id, item.fields, Object.fromEntries(shown)]);
      item.children.forEach(place);
    } else if (item.kind === "compaction") made.push(["compaction", item.id, item.status ?? "in_progress", item.error ?? null, item.prose.text]);
    else if (item.kind === "end") made.push(["end", item.outcome, item.message ?? null, ...(item.resetsAt ? [item.resetsAt] : [])]);
    else if (item.kind === "child") place(item);
  }
  return made;
}

/** @param {Timeline} timeline */
function folded(timeline) {
  const { availableModes = null, options = null, commands = null, usage = null, title = null, modeId = null } = timeline.state;
  const plan = timeline.items.findLast((item) => item.kind === "plan");
  const children = {};
  return {
    timeline: told(timeline.items, "", children),
    children,
    attributes: { availableModes, options, commands, plan: plan?.entries ?? null, usage, title, modeId },
    openQuestions: timeline.items.filter((item) => item.kind === "question" && !item.answer).map((item) => item.id).sort(),
  };
}

const found = { sequences: 0, halves: 0, wrong: [] };
const note = (name, cut, entries, wanted, got) => {
  if (!isDeepStrictEqual(JSON.parse(JSON.stringify(got)), wanted)) found.wrong.push({ name, cut, entries, wanted, got });
};
console.error = (error) => { throw error; };  // what cannot be read is no surprise to a fold

for (const line of readFileSync(process.argv[2], "utf8").split("\n").filter(Boolean)) {
  const { name, entries, fold } = JSON.parse(line);
  found.sequences++;
  note(name, null, entries, fold, folded(timelineOf(entries)));
  // A page that begins behind the announcement of a message between sessions cannot place it.
  if (JSON.stringify(entries).includes('"session_message')) continue;
  for (let cut = 1; cut < entries.length; cut++) {
    found.halves++;
    const later = timelineOf(entries.slice(cut));
    later.prepend(timelineOf(entries.slice(0, cut)));
    note(name, cut, entries, fold, folded(later));
  }
}
console.log(JSON.stringify({ ...found, failed: found.wrong.length, wrong: found.wrong.slice(0, 5) }));
