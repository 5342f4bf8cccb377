"use strict";
(() => {
  const $ = id => document.getElementById(id);
  const { table: places, files } = JSON.parse($("places").textContent);
  const KINDS = { e: "equation", q: "equation", o: "operation", f: "fact", s: "line" };
  const kindOf = row => KINDS[row.id[0]];
  const lineOf = place => places[place][0] + "." + places[place][1];

  // Which rows belong to a place, and to a line of source.
  // A module knows only where a place begins.
  const beginOf = place => places[place].slice(0, 3).join(".");
  const byPlace = new Map(), byBegin = new Map(), byLine = new Map();
  const add = (map, key, row) => { const known = map.get(key); if (known) known.push(row); else map.set(key, [row]); };
  for (const row of document.querySelectorAll(".r[data-p]")) {
    add(byPlace, +row.dataset.p, row);
    add(byBegin, beginOf(+row.dataset.p), row);
    add(byLine, lineOf(+row.dataset.p), row);
  }
  const numbered = list => {
    const rows = [];
    for (const part of (list || "").split(",")) {
      if (!part) continue;
      const [first, last] = part.split("-").map(Number);
      for (let n = first; n <= (last ?? first); n++) { const found = $("e" + n); if (found) rows.push(found); }
    }
    return rows;
  };
  // Lines that led to an equation: a call of its function, a loop around it.
  const above = new Map();
  for (const line of document.querySelectorAll(".l[data-w]"))
    for (const row of numbered(line.dataset.w)) add(above, row, line);

  const operationsAt = place => byBegin.get(beginOf(place)).filter(row => kindOf(row) === "operation");

  // --- what belongs to a row, in the other panes and in its own
  const related = row => {
    const found = new Set(), kind = kindOf(row);
    const place = row.dataset.p === undefined ? null : +row.dataset.p;
    const line = kind === "line" ? row.id.slice(1) : place === null ? null : lineOf(place);
    const equations = [...numbered(row.dataset.e), ...numbered(row.dataset.w)];
    if (kind === "equation" || kind === "operation") {
      const same = place === null ? [] : kind === "equation" ? byPlace.get(place) : byBegin.get(beginOf(place));
      for (const other of same) if (kindOf(other) !== "fact") found.add(other);
      if (kind === "equation" && place !== null) for (const other of operationsAt(place)) found.add(other);
      for (const other of byLine.get(line) || []) if (kindOf(other) === "fact") found.add(other);
    } else if (kind === "fact" && equations.length) {
      for (const other of byLine.get(line) || []) if (kindOf(other) === "fact") found.add(other);
    } else {
      for (const other of byLine.get(line) || []) found.add(other);
    }
    for (const equation of equations) {
      found.add(equation);
      if (equation.dataset.p !== undefined) for (const other of operationsAt(+equation.dataset.p)) found.add(other);
    }
    if (line !== null && $("s" + line)) found.add($("s" + line));
    found.add(row);
    return found;
  };

  // --- selection
  let selected = null, lit = new Set(), near = [];
  const markSummaries = () => {
    for (const summary of document.querySelectorAll("summary[data-lit]")) delete summary.dataset.lit;
    const counts = new Map();
    for (const row of lit)
      for (let box = row.parentElement.closest("details"); box; box = box.parentElement.closest("details"))
        if (!box.classList.contains("s")) counts.set(box, (counts.get(box) || 0) + 1);
    for (const [box, count] of counts) box.firstElementChild.dataset.lit = count.toLocaleString("en");
  };
  const markTabs = () => {
    const counts = new Map();
    for (const row of lit) { const panel = row.closest(".scroll"); counts.set(panel, (counts.get(panel) || 0) + 1); }
    for (const tab of document.querySelectorAll("[role=tab]")) {
      const label = tab.querySelector("i"), count = counts.get($(tab.getAttribute("aria-controls")));
      label.textContent = (count && selected ? count.toLocaleString("en") + " of " : "") + label.dataset.count;
      label.classList.toggle("some", Boolean(count && selected));
    }
  };
  const say = () => {
    if (!selected) { $("status").textContent = ""; return; }
    const counts = { equation: 0, operation: 0, fact: 0, line: 0 };
    for (const row of lit) counts[kindOf(row)]++;
    const words = (n, noun) => n.toLocaleString("en") + " " + noun + (n === 1 ? "" : "s");
    const [file, line] = kindOf(selected) === "line" ? selected.id.slice(1).split(".") : places[selected.dataset.p] || [];
    const where = file === undefined ? "no source place" : files[file] + ":" + line;
    $("status").textContent = [where, words(counts.equation, "equation"), words(counts.operation, "operation"),
      ...(counts.fact ? [words(counts.fact, "fact")] : [])].join(" \u00b7 ");
  };
  const underline = row => {
    if (!window.Highlight || !CSS.highlights) return;
    CSS.highlights.delete("span");
    if (!row || row.dataset.p === undefined) return;
    const [file, first, start, last, end] = places[+row.dataset.p], ranges = [];
    for (let n = first; n <= last; n++) {
      const line = $("s" + file + "." + n);
      if (!line) continue;
      const code = line.querySelector("code"), length = code.textContent.length, margin = +line.dataset.m;
      const left = n === first ? Math.max(start - margin, 0) : length - code.textContent.trimStart().length;
      const right = n === last ? Math.min(end - margin, length) : length;
      if (right > left) ranges.push(rangeIn(code, left, right));
    }
    if (ranges.length) CSS.highlights.set("span", new Highlight(...ranges));
  };
  const rangeIn = (code, left, right) => {
    const range = new Range(), walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
    let at = 0, started = false;
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      if (!started && left < at + node.length) { range.setStart(node, left - at); started = true; }
      if (right <= at + node.length) { range.setEnd(node, right - at); break; }
      at += node.length;
    }
    return range;
  };
  // --- which equations make the operands of an equation, and which read its results
  let makers = null, readers = null;
  const namesOf = row => {
    const code = row.querySelector("code"), parts = [...code.childNodes], word = parts.findIndex(part => part.tagName === "B");
    const results = parts.slice(0, word).filter(part => part.tagName === "I").map(part => part.previousSibling.textContent.trim());
    const operands = code.lastChild.textContent.trim().split(" ").filter(name => name && !name.includes(":"));
    return [results, operands];
  };
  const neighbours = row => {
    if (!makers) {
      makers = new Map(); readers = new Map();
      for (const other of document.querySelectorAll("#jaxpr div.r")) {
        const [results, operands] = namesOf(other);
        for (const name of results) makers.set(name, other);
        for (const name of operands) add(readers, name, other);
      }
    }
    const [results, operands] = namesOf(row);
    return [...operands.map(name => makers.get(name)), ...results.flatMap(name => readers.get(name) || []),
      ...(above.get(row) || [])]
      .filter(other => other && other !== row);
  };
  const mark = (rows, how) => {
    for (const row of rows) {
      row.classList.toggle("lit", how);
      if (row.role === "option" || row.getAttribute("role") === "option") row.setAttribute("aria-selected", how);
    }
  };
  // Browsers refuse many changes of the address in a short time.
  let address = 0;
  const setAddress = () => {
    const hash = selected ? "#" + selected.id : "";
    try { if (location.hash !== hash) history.replaceState(null, "", hash || location.pathname + location.search); }
    catch { /* not allowed in a frame */ }
  };
  const select = (row, { reveal = true, keep = null } = {}) => {
    const found = row ? related(row) : new Set();
    mark([...lit].filter(other => !found.has(other)), false);
    mark([...found].filter(other => !lit.has(other)), true);
    selected?.classList.remove("on");
    selected = row;
    lit = found;
    row?.classList.add("on");
    for (const other of near) other.classList.remove("near");
    near = row && kindOf(row) === "equation" ? neighbours(row) : [];
    for (const other of near) other.classList.add("near");
    markSummaries();
    markTabs();
    say();
    underline(row);
    clearTimeout(address);
    address = setTimeout(setAddress, 100);
    if (row && reveal) for (const panel of document.querySelectorAll(".scroll:not([hidden])"))
      if (panel !== keep) revealIn(panel);
  };
  const openTo = row => {
    for (let box = row.parentElement.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
  };
  const bring = (row, panel = row.closest(".scroll")) => {
    if (getComputedStyle(panel).overflowY === "visible") return;
    const box = row.getBoundingClientRect(), frame = panel.getBoundingClientRect();
    if (box.top < frame.top + 28 || box.bottom > frame.bottom - 8)
      panel.scrollTop += box.top - frame.top - Math.min(frame.height / 3, 160);
  };
  const firstLit = panel => [...lit].filter(row => panel.contains(row))
    .reduce((a, b) => (a && a.compareDocumentPosition(b) & Node.DOCUMENT_POSITION_FOLLOWING ? a : b), null);
  const revealIn = panel => {
    const first = firstLit(panel);
    if (!first) return;
    openTo(first);
    bring(first, panel);
  };

  // --- panes and tabs
  const show = tab => {
    for (const other of tab.parentElement.querySelectorAll("[role=tab]")) {
      const on = other === tab;
      other.setAttribute("aria-selected", on);
      other.tabIndex = on ? 0 : -1;
      $(other.getAttribute("aria-controls")).hidden = !on;
    }
    if (selected) revealIn($(tab.getAttribute("aria-controls")));
    if ($("find").value) search();
  };
  for (const list of document.querySelectorAll("[role=tablist]")) {
    list.addEventListener("click", event => { const tab = event.target.closest("[role=tab]"); if (tab) show(tab); });
    list.addEventListener("keydown", event => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const tabs = [...list.querySelectorAll("[role=tab]")];
      const next = tabs[(tabs.indexOf(document.activeElement) + step + tabs.length) % tabs.length];
      show(next); next.focus(); event.preventDefault(); event.stopPropagation();
    });
  }
  const tabOf = panel => document.querySelector(`[role=tab][aria-controls="${panel.id}"]`);
  const goTo = row => {
    const panel = row.closest(".scroll");
    if (panel.hidden) show(tabOf(panel));
    openTo(row);
    select(row, { keep: panel });
    bring(row, panel);
    focusRow(row);
  };
  let tabStop = null;
  const focusRow = row => {
    if (tabStop) tabStop.tabIndex = -1;
    if (row.classList.contains("r")) { tabStop = row; row.tabIndex = 0; }
    row.focus({ preventScroll: true });
  };
  document.addEventListener("click", event => {
    const row = event.target.closest(".r");
    if (!row || window.getSelection()?.toString()) return;
    if (row === selected) { select(null); return; }
    select(row, { keep: row.closest(".scroll") });
    focusRow(row);
  });
  // A row may have been scrolled to by the browser while its group was closed.
  const fromHash = () => {
    const row = $(decodeURIComponent(location.hash.slice(1)));
    if (row?.classList.contains("r")) goTo(row);
  };
  window.addEventListener("hashchange", fromHash);

  // --- moving by keyboard
  const walkerIn = panel => document.createTreeWalker(panel, NodeFilter.SHOW_ELEMENT, { acceptNode(node) {
    const parent = node.parentElement;
    if (parent.tagName === "DETAILS" && !parent.open && node !== parent.firstElementChild) return NodeFilter.FILTER_REJECT;
    if (node.tagName === "SUMMARY") return NodeFilter.FILTER_ACCEPT;
    if (!node.classList.contains("r")) return NodeFilter.FILTER_SKIP;
    const hidden = document.body.classList.contains("only") && !node.classList.contains("hit") && panel.id !== "lines";
    return hidden ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT;
  } });
  const current = () => {
    const focused = document.activeElement;
    if (focused && (focused.classList.contains("r") || focused.tagName === "SUMMARY")) return focused;
    return selected && !selected.closest(".scroll").hidden ? selected : null;
  };
  const step = by => {
    const from = current(), panel = from ? from.closest(".scroll") : $("lines"), walker = walkerIn(panel);
    if (from) walker.currentNode = from;
    let next = from, left = Math.abs(by);
    for (; left > 0; left--) { const found = by > 0 ? walker.nextNode() : walker.previousNode(); if (!found) break; next = found; }
    if (!next || next === from) return;
    if (next.classList.contains("r")) select(next, { keep: panel });
    focusRow(next);
    bring(next, panel);
  };
  const panels = () => [...document.querySelectorAll(".scroll:not([hidden])")];
  const across = by => {
    const all = panels(), from = current(), at = from ? all.indexOf(from.closest(".scroll")) : 0;
    for (let n = 1; n <= all.length; n++) {
      const panel = all[(at + by * n + n * all.length) % all.length];
      const row = firstLit(panel) || panel.querySelector(".r");
      if (!row) continue;
      openTo(row); focusRow(row); bring(row, panel);
      return;
    }
  };
  const nextLit = by => {
    const from = current();
    const panel = from ? from.closest(".scroll") : panels()[1] || panels()[0];
    const rows = [...lit].filter(row => panel.contains(row))
      .sort((a, b) => (a.compareDocumentPosition(b) & Node.DOCUMENT_POSITION_FOLLOWING ? -1 : 1));
    if (!rows.length) return;
    const next = rows[(rows.indexOf(from) + by + rows.length) % rows.length];
    openTo(next); focusRow(next); bring(next, panel);
  };

  // --- search
  const MARKED = 2000, texts = new Map();
  const textOf = row => { let text = texts.get(row); if (text === undefined) texts.set(row, text = row.textContent.toLowerCase()); return text; };
  let hits = [], hitAt = -1;
  const search = () => {
    const words = $("find").value.trim().toLowerCase();
    for (const row of document.querySelectorAll(".hit")) row.classList.remove("hit");
    hits = []; hitAt = -1;
    if (words) for (const panel of panels()) for (const row of panel.querySelectorAll(".r"))
      if (textOf(row).includes(words)) { row.classList.add("hit"); hits.push(row); }
    $("hits").textContent = words ? hits.length.toLocaleString("en") + (hits.length === 1 ? " match" : " matches") : "";
    markFound();
    const only = Boolean(words && $("only").checked);
    document.body.classList.toggle("only", only);
    for (const box of document.querySelectorAll(".void")) box.classList.remove("void");
    if (!only) return;
    const filled = new Set();
    for (const row of hits)
      for (let box = row.parentElement; !box.classList.contains("scroll") && !filled.has(box); box = box.parentElement) {
        filled.add(box);
        if (box.tagName === "DETAILS") box.open = true;
        if (box.classList.contains("n")) filled.add(box.previousElementSibling);
      }
    for (const box of document.querySelectorAll(".right :is(details, .c)")) if (!filled.has(box)) box.classList.add("void");
  };
  const markFound = () => {
    if (!window.Highlight || !CSS.highlights) return;
    CSS.highlights.delete("found");
    const words = $("find").value.trim().toLowerCase();
    if (words) CSS.highlights.set("found", new Highlight(...hits.slice(0, MARKED).map(row => {
      const at = textOf(row).indexOf(words);
      return rangeIn(row, at, at + words.length);
    })));
  };
  let timer = 0;
  $("find").addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(search, 60); });
  $("only").addEventListener("change", search);
  const nextHit = by => {
    clearTimeout(timer);
    if (!hits.length) search();
    if (!hits.length) return;
    hitAt = (hitAt + by + hits.length) % hits.length;
    const row = hits[hitAt];
    openTo(row);
    select(row);
    bring(row);
    $("hits").textContent = (hitAt + 1).toLocaleString("en") + " of " + hits.length.toLocaleString("en");
  };
  $("find").addEventListener("keydown", event => {
    if (event.key === "Enter") { nextHit(event.shiftKey ? -1 : 1); event.preventDefault(); }
    if (event.key === "Escape") { $("find").value = ""; search(); current() ? focusRow(current()) : $("find").blur(); event.preventDefault(); }
    event.stopPropagation();
  });

  // --- folding, theme, help, the border between the panes
  const fold = () => {
    const boxes = [...document.querySelectorAll("#program .scroll:not([hidden]) :is(.g, .n, .f)")];
    const open = boxes.some(box => !box.open);
    for (const box of boxes) box.open = open;
  };
  const remembered = name => { try { return localStorage.getItem(name); } catch { return null; } };
  const remember = (name, value) => { try { localStorage.setItem(name, value); } catch { /* not allowed for files */ } };
  const setTheme = theme => {
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
  };
  const nextTheme = () => {
    const dark = document.documentElement.dataset.theme === "dark"
      || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
    setTheme(dark ? "light" : "dark");
    remember("ricalco-theme", dark ? "light" : "dark");
  };
  setTheme(remembered("ricalco-theme"));
  $("fold").addEventListener("click", fold);
  $("theme").addEventListener("click", nextTheme);
  $("ask").addEventListener("click", () => $("help").showModal());
  const split = $("split");
  const setSplit = percent => {
    const value = Math.min(Math.max(percent, 20), 80);
    document.documentElement.style.setProperty("--split", value + "%");
    split.setAttribute("aria-valuenow", Math.round(value));
  };
  split.addEventListener("pointerdown", event => {
    split.setPointerCapture(event.pointerId);
    const move = moved => setSplit(100 * moved.clientX / innerWidth);
    split.addEventListener("pointermove", move);
    split.addEventListener("pointerup", () => split.removeEventListener("pointermove", move), { once: true });
  });
  split.addEventListener("keydown", event => {
    const by = { ArrowLeft: -2, ArrowRight: 2 }[event.key];
    if (by) { setSplit(+split.getAttribute("aria-valuenow") + by); event.preventDefault(); event.stopPropagation(); }
  });

  // --- tables
  for (const button of document.querySelectorAll("th button")) button.addEventListener("click", () => {
    const head = button.parentElement, body = head.closest("table").tBodies[0], column = head.cellIndex;
    const down = head.getAttribute("aria-sort") !== (head.classList.contains("num") ? "descending" : "ascending")
      ? head.classList.contains("num") : !head.classList.contains("num");
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = row => row.cells[column].dataset.v ?? row.cells[column].textContent;
    const compare = (a, b) => head.classList.contains("num") ? a - b : a.localeCompare(b, "en", { numeric: true });
    const rows = [...body.rows].sort((a, b) => compare(key(a), key(b)) * (down ? -1 : 1));
    body.append(...rows);
  });

  const KEYS = {
    j: () => step(1), ArrowDown: () => step(1), k: () => step(-1), ArrowUp: () => step(-1),
    PageDown: () => step(20), PageUp: () => step(-20), h: () => across(-1), ArrowLeft: () => across(-1), l: () => across(1),
    ArrowRight: () => across(1), n: () => nextLit(1), N: () => nextLit(-1), p: () => nextLit(-1), o: fold, t: nextTheme,
    "/": () => { $("find").focus(); $("find").select(); }, "?": () => $("help").showModal(),
    "1": () => tab("jaxpr"), "2": () => tab("stablehlo"),
    Enter: () => { const row = current(); if (row?.classList.contains("r")) row === selected ? across(1) : goTo(row); },
    Escape: () => select(null),
  };
  const tab = name => { const found = document.querySelector(`[aria-controls=${name}]`); if (found) show(found); };
  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
    const on = document.activeElement?.tagName;
    if (on === "INPUT" || ((on === "SUMMARY" || on === "BUTTON") && event.key === "Enter")) return;
    const action = KEYS[event.key];
    if (action) { event.preventDefault(); action(); }
  });

  const first = document.querySelector("#lines .r");
  if (first) { first.tabIndex = 0; tabStop = first; }
  fromHash();
  document.documentElement.dataset.ready = "";
})();
