// Titles and commands of agents.
import { exact, visible } from "../model/text.js";
import { html } from "./html.js";

/** A command, which breaks between words: `--force` broken behind its hyphens would read as another one. @param {string} text */
export const words = (text) => exact(text).split(/(\s+)/).map((part, at) => (at % 2 ? part : html`<span class="word">${part}</span>`));

/** A command in a line of words. @param {string} text */
export const command = (text) => html`<code>${words(text)}</code>`;

/** A title; what is between backticks is code, and what is behind one in a title that was cut off. @param {string} title */
export const coded = (title) => title.split(/`([^`]+)(?:`|$)/).map((part, at) => (at % 2 ? html`<code>${words(part)}</code>` : visible(part)));
