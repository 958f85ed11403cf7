
"use strict";
// Search, folds, and what is copied. Hits are whole blocks, and in browsers that can, the words in
// them are marked.
(() => {
  const words = document.getElementById("words");
  const count = document.getElementById("count");
  const folds = document.getElementById("folds");
  const blocks = [...document.querySelectorAll(".block")];
  const details = [...document.querySelectorAll("main details")];
  const startedOpen = details.filter((fold) => fold.open);
  const texts = blocks.map((block) => block.textContent.toLowerCase());
  const canMark = typeof Highlight === "function" && CSS.highlights;
  const marksAtMost = 5000;
  let hits = [];
  let now = -1;
  let pause = 0;

  document.querySelector(".bar").hidden = false;
  folds.hidden = !details.length;

  function ranges(block, sought) {
    const found = [];
    const walk = document.createTreeWalker(block, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
      const text = walk.currentNode.data.toLowerCase();
      // Some letters change their length in lower case; then places would be wrong.
      if (text.length !== walk.currentNode.data.length) continue;
      for (let at = text.indexOf(sought); at >= 0; at = text.indexOf(sought, at + sought.length)) {
        const range = new Range();
        range.setStart(walk.currentNode, at);
        range.setEnd(walk.currentNode, at + sought.length);
        found.push(range);
      }
    }
    return found;
  }

  function mark(name, found) {
    if (!canMark) return;
    if (found.length) CSS.highlights.set(name, new Highlight(...found));
    else CSS.highlights.delete(name);
  }

  function tell() {
    const sought = words.value.trim();
    if (!sought) count.textContent = "";
    else if (!hits.length) count.textContent = "no hits";
    else count.textContent = now < 0 ? `${hits.length} found` : `${now + 1} of ${hits.length}`;
  }

  function search() {
    const sought = words.value.trim().toLowerCase();
    for (const block of hits) block.classList.remove("hit", "now");
    hits = sought ? blocks.filter((_, place) => texts[place].includes(sought)) : [];
    now = -1;
    const marks = [];
    for (const block of hits) {
      block.classList.add("hit");
      if (marks.length < marksAtMost) marks.push(...ranges(block, sought).slice(0, marksAtMost));
    }
    mark("words", marks);
    mark("now", []);
    tell();
  }

  function go(step) {
    clearTimeout(pause);
    if (pause) { pause = 0; search(); }
    if (!hits.length) return;
    if (now >= 0) hits[now].classList.remove("now");
    now = now < 0 ? (step > 0 ? 0 : hits.length - 1) : (now + step + hits.length) % hits.length;
    const block = hits[now];
    block.classList.add("now");
    const found = ranges(block, words.value.trim().toLowerCase());
    for (let fold = found[0]?.startContainer.parentElement ?? block; fold; fold = fold.parentElement) {
      if (fold.tagName === "DETAILS") fold.open = true;
    }
    mark("now", found);
    (found[0]?.startContainer.parentElement ?? block).scrollIntoView({ block: "center" });
    tell();
  }

  function openAll(open) {
    folds.setAttribute("aria-pressed", String(open));
    folds.textContent = open ? "Close all" : "Open all";
    for (const fold of details) fold.open = open;
  }

  words.addEventListener("input", () => {
    clearTimeout(pause);
    pause = setTimeout(() => { pause = 0; search(); }, 120);
  });
  words.addEventListener("keydown", (event) => {
    if (event.key === "Enter") { event.preventDefault(); go(event.shiftKey ? -1 : 1); }
    if (event.key === "Escape") { words.value = ""; search(); words.blur(); }
  });
  document.getElementById("next").addEventListener("click", () => go(1));
  document.getElementById("before").addEventListener("click", () => go(-1));
  folds.addEventListener("click", () => openAll(folds.getAttribute("aria-pressed") !== "true"));
  document.addEventListener("keydown", (event) => {
    const typing = /^(input|textarea)$/i.test(event.target.tagName);
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      words.focus();
      words.select();
    }
  });

  async function copied(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      return false;  // no page from a disk may, in some browsers: then it is selected, to be copied
    }
  }

  for (const code of document.querySelectorAll("main pre")) {
    const box = document.createElement("div");
    const button = document.createElement("button");
    box.className = "code";
    button.className = "copy";
    button.type = "button";
    button.setAttribute("aria-label", "Copy this text");
    code.replaceWith(box);
    box.append(code, button);
    button.addEventListener("click", async () => {
      if (!(await copied(code.textContent))) {
        getSelection().selectAllChildren(code);
        if (!document.execCommand("copy")) return;
      }
      button.classList.add("done");
      setTimeout(() => button.classList.remove("done"), 1500);
    });
  }

  function openTarget() {
    const fold = document.querySelector(".entry:target > details");
    if (fold) fold.open = true;
  }
  addEventListener("hashchange", openTarget);
  openTarget();

  addEventListener("beforeprint", () => { for (const fold of details) fold.open = true; });
  addEventListener("afterprint", () => {
    for (const fold of details) fold.open = startedOpen.includes(fold);
  });
})();
