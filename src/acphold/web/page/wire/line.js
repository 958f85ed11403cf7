// What a session is owed over the next connection, whatever the last ones lost.
//
// The rules are those of `acphold/live/lines/line.py`, which has the theory; both pass the same cases
// (tests/lines/line_cases.py). A position only goes forward. A prompt is kept until it is answered,
// and sent again under its id, with a position from before it, by which the server runs it once. An
// answer to a question is kept until the server has it: a question that comes again gets it again.
//
//   a prompt is  when                                       after a loss of the connection
//   kept         it waits for a connection                  kept
//   sent         it was sent                                kept
//   arrived      the server has read it                     kept
//   begun        its turn has begun                         again
//   again        its turn had begun: only its end is owed   again
//   failed       it was refused                             failed

/** @typedef {import("../model/sends.js").Kept} Kept */

/** @typedef {"kept" | "sent" | "arrived" | "begun" | "again" | "failed"} PromptState */

/**
 * @typedef {object} Sending
 * @property {Kept} kept
 * @property {PromptState} state
 * @property {string} [error]
 */

/** @type {Partial<Record<PromptState, PromptState>>} */
const AFTER_LOSS = { sent: "kept", arrived: "kept", begun: "again" };

/** The states in which a prompt is owed to the server, and those that sending it leads to. @type {Partial<Record<PromptState, PromptState>>} */
const AFTER_SENDING = { kept: "sent", again: "begun" };

export class SessionLine {
  /** That of the last update; before the first one, of the end that was read. */
  position = 0;
  /** The history that the position belongs to: where the journal has gone back, the server has another one, and refuses. */
  lineage = "";
  /** Prompts without an answer, in the order in which they were written. @type {Sending[]} */
  sending = [];
  /** Answers that the server may not have, by question. @type {Map<string, {sent: string, result: object}>} */
  #given = new Map();

  /** The session is opened after an end that was read: its position may be an earlier one. @param {number} position @param {string} lineage */
  begin(position, lineage) {
    this.position = position;
    this.lineage = lineage;
  }

  /** The answer that opens the session has come. @param {string} [lineage] @param {string[]} [accepted]  our ids of answers that were accepted */
  opened(lineage, accepted = []) {
    this.lineage = lineage ?? this.lineage;
    for (const [question, { sent }] of this.#given) if (accepted.includes(sent)) this.#given.delete(question);
  }

  /** An update has come, perhaps late or again. @param {number} position */
  told(position) {
    this.position = Math.max(this.position, position);
  }

  /** What the session is resumed with over a new connection, in `_meta`. */
  resume() {
    return {
      "acphold/after": this.position,
      "acphold/lineage": this.lineage || undefined,
      "acphold/sent": this.sending.filter(({ kept }) => !kept.later && kept.after !== null).map(({ kept }) => kept.id),
      "acphold/answered": [...this.#given.values()].map(({ sent }) => sent),
    };
  }

  /** The connection is lost. */
  lost() {
    this.sending = this.sending.map((each) => ({ ...each, state: AFTER_LOSS[each.state] ?? each.state }));
  }

  // -- prompts -------------------------------------------------------------------------------

  /** @param {string} id */
  find(id) {
    return this.sending.find(({ kept }) => kept.id === id);
  }

  /** Keep a prompt until it is answered. @param {Kept} kept */
  keep(kept) {
    this.sending = [...this.sending, { kept, state: "kept" }];
  }

  /** A prompt is sent now: how it is named to the server, null if it is not owed. @param {string} id @returns {{id: string, after?: number} | null} */
  send(id) {
    const sending = this.find(id);
    const next = sending && AFTER_SENDING[sending.state];
    if (!next) return null;
    this.mark(id, next);
    const { kept } = sending;
    if (kept.after !== null) return { id, after: kept.after };
    kept.after = this.position;
    return { id };
  }

  /** @param {string} id @param {PromptState} state @param {string} [error] */
  mark(id, state, error) {
    this.sending = this.sending.map((each) => (each.kept.id === id ? { ...each, state, error } : each));
  }

  /** It is answered, or nobody wants it any more. @param {string} id */
  over(id) {
    this.sending = this.sending.filter(({ kept }) => kept.id !== id);
  }

  // -- questions -----------------------------------------------------------------------------

  /** What was answered to a question before the connection was lost. @param {string} question */
  given(question) {
    return this.#given.get(question)?.result;
  }

  /** Keep an answer until the server has it. @param {string} question @param {string} sent  our id of it @param {object} result */
  give(question, sent, result) {
    this.#given.set(question, { sent, result });
  }

  /** The server has the answer, or needs none. @param {string} question */
  arrived(question) {
    this.#given.delete(question);
  }
}
