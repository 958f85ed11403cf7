// The words and files of a prompt that is being written. The words are kept on this device as they are
// typed: a page that is loaded again has them, and none of them ever takes the place of others.
import { signal } from "@preact/signals";
import { draft, keepDraft } from "./sends.js";

export class Draft {
  text = signal("");
  /** @type {import("@preact/signals").Signal<{name: string, content: Received}[]>} */
  files = signal([]);
  /** @type {Promise<unknown> | undefined} */
  #loading;

  /** @param {string} id  of its session */
  constructor(id) {
    this.id = id;
  }

  /** Have what was kept, once; it stands in front of what is typed until it is there. */
  load() {
    return (this.#loading ??= draft(this.id).then((kept) => (kept ? this.#putInFront([kept]) : undefined)).catch(() => {}));  // a private window keeps nothing
  }

  /** @param {string} text @returns {Promise<boolean>} whether it is kept */
  write(text) {
    void this.load();  // which reads what was kept before this takes its place
    this.text.value = text;
    return keepDraft(this.id, text).then(() => true, () => false);
  }

  /** Write on with the content of a prompt, in front of what is there. @param {Received[]} content @returns {Promise<boolean>} whether its words are kept */
  async takeBack(content) {
    await this.load();
    // A link stands in the text, behind its @.
    const others = content.filter((each) => each.type !== "text" && each.type !== "resource_link");
    this.files.value = [...others.map((each) => ({ name: "", content: each })), ...this.files.value];
    return this.#putInFront(content.filter((each) => each.type === "text").map((each) => each.text));
  }

  /** @param {string[]} words */
  #putInFront(words) {
    return this.write([...words, this.text.value].filter(Boolean).join("\n\n"));
  }
}
