// What came of a question, in words.
import { line, wordTable } from "./text.js";

/** By the kind of the option that was chosen, or what was done with a form. */
export const HOW = wordTable({ allow_once: "Allowed", allow_always: "Always allowed", reject_once: "Refused", reject_always: "Always refused", accept: "Answered", decline: "Declined", cancel: "Dismissed" });

/** The program that a person answered in. @param {unknown} name */
export const inClient = (name) => (name === "acphold-page" ? "on the page" : `in ${line(name, 40)}`);
