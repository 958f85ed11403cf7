// Elements from templates. There is no way from a text to HTML here, nor in anything that uses it.
import htm from "htm";
import { h } from "preact";

/** @type {(strings: TemplateStringsArray, ...values: any[]) => any} */
export const html = htm.bind(h);
