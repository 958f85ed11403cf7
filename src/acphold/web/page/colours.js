// Code in colours, loaded when it is first needed: highlight.js with the languages agents write.
// Its tokens are taken, not the HTML that it makes of them.
import hljs from "highlight.js/lib/core";
import bash from "highlight.js/lib/languages/bash";
import c from "highlight.js/lib/languages/c";
import cpp from "highlight.js/lib/languages/cpp";
import csharp from "highlight.js/lib/languages/csharp";
import css from "highlight.js/lib/languages/css";
import diff from "highlight.js/lib/languages/diff";
import dockerfile from "highlight.js/lib/languages/dockerfile";
import go from "highlight.js/lib/languages/go";
import ini from "highlight.js/lib/languages/ini";
import java from "highlight.js/lib/languages/java";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import kotlin from "highlight.js/lib/languages/kotlin";
import markdown from "highlight.js/lib/languages/markdown";
import php from "highlight.js/lib/languages/php";
import python from "highlight.js/lib/languages/python";
import ruby from "highlight.js/lib/languages/ruby";
import rust from "highlight.js/lib/languages/rust";
import sql from "highlight.js/lib/languages/sql";
import swift from "highlight.js/lib/languages/swift";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";

const LANGUAGES = {
  bash, c, cpp, csharp, css, diff, dockerfile, go, ini, java, javascript, json, kotlin, markdown,
  php, python, ruby, rust, sql, swift, typescript, xml, yaml,
};
for (const [name, language] of Object.entries(LANGUAGES)) hljs.registerLanguage(name, language);

/** @typedef {{text: string, scope?: string, inside?: Run[]}} Run */

/** @param {string} text @param {string} language @returns {Run[] | null} */
export function colour(text, language) {
  if (!hljs.getLanguage(language)) return null;
  const found = hljs.highlight(text, { language, ignoreIllegals: true });
  return /** @type {{rootNode: {children: Node[]}}} */ (/** @type {unknown} */ (found._emitter)).rootNode.children.map(run);
}

/** @typedef {string | {scope?: string, children: Node[]}} Node  of the tree of highlight.js */

/** @param {Node} node @returns {Run} */
function run(node) {
  if (typeof node === "string") return { text: node };
  const scope = String(node.scope ?? "").split(".")[0].replace(/[^a-z_-]/g, "");
  return { text: "", scope: scope || "plain", inside: node.children.map(run) };
}
