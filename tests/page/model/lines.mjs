// Takes the steps of the cases in a file on the page's line, and says where it owes something else
// than what stands beside them: see tests/lines/line_cases.py.
import { readFileSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";
import { SessionLine } from "../../../src/acphold/web/page/wire/line.js";

/** @param {any[][]} steps */
function owed(steps) {
  const line = new SessionLine();
  let isUp = true;
  const takes = {
    open: (position, lineage) => line.begin(position, lineage),
    told: (position) => (line.told(position), line.position),
    prompt: (id) => {
      line.keep({ id, after: null });
      return isUp ? line.send(id) : null;
    },
    answered: (id) => line.over(id),
    question: (question) => line.given(question),
    give: (question, answer) => line.give(question, `sent ${answer}`, answer),
    cut: () => {
      isUp = false;
      line.lost();
    },
    back: (lineage) => {
      isUp = true;
      const { "acphold/after": after, "acphold/lineage": of = null, "acphold/sent": sent } = line.resume();
      line.opened(lineage ?? undefined);
      return { after, lineage: of, sent, prompts: line.sending.map(({ kept }) => line.send(kept.id)) };
    },
  };
  return steps.map(([step, ...said]) => takes[step](...said) ?? null);
}

const cases = readFileSync(process.argv[2], "utf8").split("\n").filter(Boolean).map((each) => JSON.parse(each));
const wrong = cases.map(({ name, steps, owed: expected }) => ({ name, steps, expected, owed: owed(steps) })).filter((each) => !isDeepStrictEqual(each.owed, each.expected));
console.log(JSON.stringify({ sequences: cases.length, failed: wrong.length, wrong: wrong.slice(0, 3) }));
