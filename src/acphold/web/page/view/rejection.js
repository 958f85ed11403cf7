// A question that a person has rejected in a notice: this page does it, with its own access, and says so.
import { effect } from "@preact/signals";
import { CUT } from "../model/tables.js";
import { line } from "../model/text.js";
import { notify } from "./undo.js";

/** How long it may take until the question is there. */
const PATIENCE_MS = 20_000;

/**
 * Reject this question, and no other, as soon as it is asked here; one that is answered by then stays so.
 * @param {import("../model/desk.js").Desk} desk @param {string} id
 */
export function reject(desk, id) {
  let isOver = false;
  const stop = effect(() => {
    const waiting = desk.inbox.value.find((each) => each.id === id);
    const session = waiting && desk.session(waiting.sessionId);
    const asked = session?.isAttached.value && session.questions.value.find((each) => each.id === id && each.state === "open");
    // "Always" is more than a tap on a lock screen says.
    const no = waiting?.shows?.options.find(({ kind }) => kind === "reject_once");
    if (isOver || !waiting || !session || !asked || !no) return;
    isOver = true;
    queueMicrotask(() => {
      end();
      session.answer(asked, { outcome: { outcome: "selected", optionId: no.optionId } });
      notify(desk, `Rejected: ${line(waiting.asks, CUT.part)}`);
    });
  });
  const late = setTimeout(() => {
    end();
    notify(desk, "Nothing was rejected: the question is not open any more, or not to you.");
  }, PATIENCE_MS);
  const end = () => (clearTimeout(late), stop());
}
