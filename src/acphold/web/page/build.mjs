// Bundles the page into built/: the HTML, in which its style stands; its script, which a browser keeps
// compiled, as it does with none that stands in a page; what is loaded later. `digests.json` has what
// the policy of the page names; see page_files.py.
import { createHash } from "node:crypto";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, "built");
process.chdir(here);
rmSync(out, { recursive: true, force: true });
mkdirSync(out);

/** @param {string} text @param {string} [how] */
const digest = (text, how = "base64") => createHash("sha256").update(text).digest(/** @type {any} */ (how));

/** Of the sources: hatch_build.py makes the same one, to tell whether a build is one of them. */
const sources = createHash("sha256");
for (const { name, path } of readdirSync(here, { recursive: true, withFileTypes: true })
  .filter((each) => each.isFile())
  .map((each) => ({ path: join(each.parentPath, each.name), name: join(each.parentPath, each.name).slice(here.length + 1).replaceAll(sep, "/") }))
  .filter(({ name }) => !/^(built|node_modules)\//.test(name))
  .sort((a, b) => (a.name < b.name ? -1 : 1))) {
  sources.update(`${name}\0${createHash("sha256").update(readFileSync(path)).digest("hex")}\n`);
}

/** @type {Set<string>} */
const bundled = new Set();

/** Templates of the views without their indentation, which means nothing in them. @type {import("esbuild").Plugin} */
const unindented = {
  name: "unindented",
  setup: ({ onLoad }) => {
    onLoad({ filter: /\/view\/\w+\.js$/ }, ({ path }) => ({ contents: readFileSync(path, "utf8").replace(/\n +/g, "\n"), loader: "js" }));
  },
};

/** What the page lends to what is loaded later: see view/lent.js. */
const LENT = /** @type {Record<string, string[]>} */ ({
  preact: ["render"],
  "@preact/signals": ["effect", "signal"],
  "preact/hooks": ["useEffect", "useLayoutEffect", "useMemo", "useReducer", "useRef", "useState"],
  "./html.js": ["html"],
  "./places.js": ["codeIn", "go", "here", "place", "sessionPlace", "whole"],
  "./rows.js": ["standing", "State"],
  "./long.js": ["Long"],
  "../model/prose.js": ["Prose"],
  "./prose.js": ["ProseView"],
  "./coded.js": ["coded", "words"],
  "./guard.js": ["Guard"],
  "./pieces.js": ["useSome"],
  "./terminal.js": ["Output"],
});

/** @type {import("esbuild").Plugin} */
const lent = {
  name: "lent",
  setup: ({ onLoad, onResolve }) => {
    onResolve({ filter: /./ }, ({ path }) => (path in LENT ? { path, namespace: "lent" } : undefined));
    onLoad({ filter: /./, namespace: "lent" }, ({ path }) => ({
      contents: `export const { ${LENT[path].join(", ")} } = globalThis.lent[${JSON.stringify(path)}];`,
    }));
  },
};

/** marked without its renderers: the page draws tokens itself. Its one instance keeps all of it from being shaken off. @type {import("esbuild").Plugin} */
const lexerAlone = {
  name: "lexer alone",
  setup: ({ onLoad }) => {
    onLoad({ filter: /\/marked\.esm\.js$/ }, ({ path }) => {
      const whole = readFileSync(path, "utf8");
      const [name, all] = [/\b(\w+) as Lexer\b/, /\b(\w+) as Marked\b/].map((each) => each.exec(whole)?.[1]);
      const end = whole.search(new RegExp(`\\bvar \\w+=new ${all};`));
      if (end < 0 || !name) throw new Error(`${path} is not built as it was: see lexerAlone in build.mjs`);
      return { contents: `${whole.slice(0, end)}export { ${name} as Lexer };`, loader: "js" };
    });
  },
};

/** The text that an entry becomes. @param {string} entry @param {Record<string, string>} [define] @param {import("esbuild").Plugin[]} [plugins] @param {"esm" | "iife"} [format] */
async function made(entry, define = {}, plugins = [unindented, lexerAlone], format = "esm") {
  const done = await build({
    entryPoints: [entry],
    bundle: true,
    write: false,
    outdir: out,
    minify: true,
    metafile: true,
    format,
    target: ["es2022", "safari16.4", "chrome111", "firefox114"],
    legalComments: "none",  // whole texts are in licences.txt
    plugins,
    charset: "utf8",
    external: ["/page/*"],
    define,
  });
  for (const path of Object.keys(done.metafile.inputs)) {
    const found = /(?:^|\/)node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path);
    if (found) bundled.add(found[1]);
  }
  return done.outputFiles[0].text;
}

const colours = await made("colours.js");
/** Its address: what is loaded later is named for what is in it. @param {string} name @param {string} text */
function kept(name, text) {
  const file = `${name}-${digest(text, "hex").slice(0, 12)}.js`;
  writeFileSync(join(out, file), text);
  return JSON.stringify(`/page/${file}`);
}
const laterStyle = (await made("style/later.css")).trim();
const later = await made("later.js", { LATER_STYLE: JSON.stringify(`@media all{${laterStyle}}`) }, [lent, unindented]);

const style = await made("style/page.css");
const early = (await made("early.js")).trim();
const told = { COLOURS: kept("colours", colours), LATER: kept("later", later) };
const frame = readFileSync("index.html", "utf8");
const number = digest((await made("main.js", { ...told, BUILD: '""' })) + style + early + frame, "hex").slice(0, 12);
const BUILD = JSON.stringify(number);
// No module: of those a browser keeps nothing compiled when the service worker stores them.
const main = await made("main.js", { ...told, BUILD }, undefined, "iife");
const MAIN = kept("main", main);
writeFileSync(join(out, "worker.js"), await made("worker.js", { ...told, BUILD, MAIN }));

const html = frame
  .replace("<!-- early -->", () => `<script>${early}</script>`)
  .replace("<!-- style -->", () => `<style>${style}</style>`)
  .replace("<!-- script -->", () => `<script defer blocking="render" src=${MAIN}></script>`);
writeFileSync(join(out, "index.html"), html);
writeFileSync(join(out, "digests.json"), JSON.stringify({ early: `sha256-${digest(early)}`, style: `sha256-${digest(style)}`, sources: sources.digest("hex") }));

for (const name of ["manifest.webmanifest", ...readdirSync("icons").map((each) => `icons/${each}`)]) {
  cpSync(name, join(out, name.replace("icons/", "")));
}

const licences = [...bundled].sort().map((name) => {
  const folder = join("node_modules", name);
  const file = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each));
  const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  if (!file || !existsSync(join(folder, file))) throw new Error(`${name} has no text of its licence`);
  return `${name} ${version} (${license})\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`;
});
writeFileSync(join(out, "licences.txt"), licences.join(`\n${"-".repeat(79)}\n\n`));

/** @param {string} text */
const kB = (text) => (gzipSync(text, { level: 9 }).length / 1000).toFixed(1);
console.log(`page ${kB(html)} kB gz, main ${kB(main)} kB gz, code colours ${kB(colours)} kB gz, later ${kB(later)} kB gz, ${bundled.size} packages`);
