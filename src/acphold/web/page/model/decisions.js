// What came of a question, in words.
import { wordTable } from "./text.js";

/** By the kind of the option that was chosen, or what was done with a form. */
export const HOW = wordTable({ allow_once: "Allowed", allow_always: "Always allowed", reject_once: "Refused", reject_always: "Always refused", accept: "Answered", decline: "Declined", cancel: "Dismissed" });
