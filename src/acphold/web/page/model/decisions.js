// What came of a question, in words.
import { CUT, DECIDED, PAGE } from "./tables.js";
import { line } from "./text.js";

/** By the kind of the option that was chosen, or what was done with a form. */
export { DECIDED as HOW };

/** The program that a person answered in. @param {unknown} name */
export const inClient = (name) => (name === PAGE ? "on the page" : `in ${line(name, CUT.short)}`);
