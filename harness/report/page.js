"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const words = data.words, reasons = new Map(Object.entries(data.reasons));
  const N = 0, AUTHOR = 1, FAMILY = 2, PHASE = 3, VERDICT = 4, IDEA = 5, DETAIL = 6, BASE = 7, BASE_LOW = 8,
    BASE_HIGH = 9, STEP = 10, STEP_LOW = 11, STEP_HIGH = 12, SECONDS = 13, KNOBS = 14, STAGE = 15;
  const rows = data.rows;
  const byNumber = new Map(rows.map((row) => [row[N], row]));
  const placesOf = (packs) => new Map(packs.flatMap((group, at) => group.map((n) => [n, at])));
  const factsAt = placesOf(data.facts), diffsAt = placesOf(data.diffs), undiffed = new Set(data.undiffed);
  const PAGE = matchMedia("(max-width: 46rem)").matches ? 20 : 50, LOG_FROM = 6, FLOOR = 0.3;
  const SEEN = { screen: "screened", decide: "decided", report: "measured" };
  const STAGES = { screen: "screened: one pair of processes, a lead", decide: "decided: fresh pairs of processes", report: "measured: report pairs, after the decision" };
  const NAMES = { kept: "kept", slow: "ran right, not faster", stopped: "stopped", pending: "pending" };

  // ---- small things

  const $ = (id) => document.getElementById(id);
  /** An element; children are nodes or text, never markup. */
  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "class") element.className = value;
      else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value !== null && value !== undefined) element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
    return element;
  }
  function draw(tag, attributes = {}, content = "") {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (content !== "") element.textContent = content;
    return element;
  }
  const verdictOf = (row) => words[row[VERDICT]];
  const groupOf = (verdict) => verdict === "kept" || verdict === "pending" ? verdict : (reasons.get(verdict) || ["stopped"])[0];
  const stageOf = (row) => STAGES[words[row[STAGE]]] || "";
  const spaced = (word) => word.replaceAll("_", " ");

  const decimalsOf = (value) => value < 2 ? 3 : value < 10 ? 2 : value < 100 ? 1 : 0;
  const fixed = (value, digits) => value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  function times(value) {
    if (value === null || value === undefined) return "–";
    return `${fixed(value, decimalsOf(value))}×`;
  }
  const between = (low, high) => low === null || high === null ? "" : `[${fixed(low, decimalsOf(low))}, ${fixed(high, decimalsOf(low))}]`;
  function brief(seconds) {
    if (seconds === null || seconds === undefined) return "–";
    const [unit, factor] = seconds >= 1 ? ["s", 1] : seconds >= 1e-3 ? ["ms", 1e3] : seconds >= 1e-6 ? ["µs", 1e6] : ["ns", 1e9];
    return seconds >= 90 ? `${(seconds / 60).toFixed(1)} min` : `${Number((seconds * factor).toPrecision(3))} ${unit}`;
  }
  const count = (value) => value === null || value === undefined ? "–" : value.toLocaleString("en-US");
  const counted = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
  const money = (value) => value === null || value === undefined ? "unknown" : value >= 0.1 || value === 0 ? `$${value.toFixed(2)}` : `$${value.toFixed(4)}`;
  const short = (value) => value === null || value === undefined ? "–" : value >= 1e5 ? value.toExponential(1).replace("e+", "e") : String(Number(value.toPrecision(3)));
  function chip(verdict) {
    const group = groupOf(verdict);
    return make("span", { class: `verdict ${group}` }, make("span", { class: `mark ${group}`, "aria-hidden": "true" }), spaced(verdict));
  }

  const inflated = new Map();
  /** The object in a packed element; inflated once. */
  function unpack(id) {
    if (!inflated.has(id)) inflated.set(id, inflate($(id).textContent));
    return inflated.get(id);
  }
  async function inflate(text) {
    if (typeof DecompressionStream === "undefined") throw new Error("old browser");
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  }

  // ---- theme

  const themes = ["system", "light", "dark"];
  function setTheme(theme) {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    $("theme").querySelector("span").textContent = theme;
  }
  function remembered() {
    try { return localStorage.getItem("hillclimb-theme"); } catch { return null; }
  }
  function startTheme() {
    let theme = themes.includes(remembered()) ? remembered() : "system";
    setTheme(theme);
    $("theme").hidden = false;
    $("theme").addEventListener("click", () => {
      theme = themes[(themes.indexOf(theme) + 1) % themes.length];
      setTheme(theme);
      try { localStorage.setItem("hillclimb-theme", theme); } catch { /* a page without a memory */ }
    });
  }

  // ---- lists: filtered, sorted, one page at a time

  /** Shows `entries` page by page in a table body; returns what shows another selection. */
  function pages(body, pager, line) {
    let entries = [], at = 0;
    const button = (text, step) => make("button", { type: "button", onclick: () => { at += step; show(); body.closest("section").scrollIntoView(); } }, text);
    const [back, forth, where] = [button("Back", -PAGE), button("Next", PAGE), make("span")];
    pager.append(back, where, forth);
    function show() {
      body.replaceChildren(...entries.slice(at, at + PAGE).map(line));
      back.disabled = at === 0;
      forth.disabled = at + PAGE >= entries.length;
      where.textContent = `${count(at + 1)} to ${count(Math.min(at + PAGE, entries.length))} of ${count(entries.length)}`;
      pager.hidden = entries.length <= PAGE;
    }
    return (chosen) => { entries = chosen; at = 0; show(); };
  }
  function offer(select, all, options) {
    select.append(make("option", { value: "" }, all));
    for (const [value, text] of options) select.append(make("option", { value }, text));
    select.disabled = options.length === 0;
  }
  function tally(list, key) {
    const found = new Map();
    for (const each of list) found.set(key(each), (found.get(key(each)) || 0) + 1);
    return [...found].sort((a, b) => b[1] - a[1]);
  }

  const hay = rows.map((row) => `#${row[N]} ${row[IDEA]} ${row[DETAIL]} ${row[KNOBS]} ${words[row[FAMILY]]} ${spaced(verdictOf(row))}`.toLowerCase());
  const orders = {
    newest: (a, b) => b[N] - a[N],
    oldest: (a, b) => a[N] - b[N],
    fastest: (a, b) => (b[BASE] ?? -1) - (a[BASE] ?? -1) || a[N] - b[N],
    longest: (a, b) => (b[SECONDS] ?? -1) - (a[SECONDS] ?? -1) || a[N] - b[N],
  };
  let chosen = rows, isFiltered = false;

  function startList() {
    if (!rows.length) return;
    const form = $("filters"), field = (name) => form.elements[name];
    const verdicts = tally(rows, verdictOf);
    const groups = tally(rows, (row) => groupOf(verdictOf(row)));
    offer(field("verdict"), "all", [
      ...groups.map(([group, n]) => [`group:${group}`, `${NAMES[group]} (${count(n)})`]),
      ...verdicts.filter(([verdict]) => verdict !== "kept" && verdict !== "pending").map(([verdict, n]) => [verdict, `  ${spaced(verdict)} (${count(n)})`]),
    ]);
    for (const [name, column] of [["author", AUTHOR], ["family", FAMILY], ["phase", PHASE]]) {
      const found = tally(rows, (row) => words[row[column]]).filter(([word]) => word);
      offer(field(name), "all", found.map(([word, n]) => [word, `${word} (${count(n)})`]));
    }
    const show = pages($("list").tBodies[0], $("pager"), candidateLine);
    function choose() {
      const parts = field("text").value.toLowerCase().split(/\s+/).filter(Boolean);
      const verdict = field("verdict").value, author = field("author").value, family = field("family").value, phase = field("phase").value;
      isFiltered = Boolean(parts.length || verdict || author || family || phase);
      const fits = (row, at) =>
        (!verdict || verdictOf(row) === verdict || `group:${groupOf(verdictOf(row))}` === verdict) &&
        (!author || words[row[AUTHOR]] === author) && (!family || words[row[FAMILY]] === family) &&
        (!phase || words[row[PHASE]] === phase) && parts.every((part) => hay[at].includes(part));
      chosen = rows.filter(fits).sort(orders[field("order").value]);
      $("found").textContent = isFiltered ? `${count(chosen.length)} of ${counted(rows.length, "candidate")}` : counted(rows.length, "candidate");
      show(chosen);
      paint();
    }
    form.addEventListener("input", choose);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("reset", () => setTimeout(choose));
    form.hidden = $("list").hidden = false;
    choose();
  }
  function candidateLine(row) {
    const kept = verdictOf(row) === "kept", family = words[row[FAMILY]];
    const step = row[STEP] === null ? "" : make("span", { class: kept ? "" : "lead", title: stageOf(row) }, times(row[STEP]), " ",
      make("small", {}, row[STEP_LOW] === null ? SEEN[words[row[STAGE]]] : between(row[STEP_LOW], row[STEP_HIGH])));
    return make("tr", { onclick: (event) => { if (!event.target.closest("a")) open(row[N]); } },
      make("td", { class: "n" }, make("a", { href: `#n${row[N]}` }, `#${row[N]}`)),
      make("td", {}, chip(verdictOf(row))),
      make("td", { class: "num", ...(step && { "data-label": "over incumbent" }) }, step),
      make("td", { class: "num", ...(row[BASE] !== null && { "data-label": "over baseline" }) }, row[BASE] === null ? "" : make(kept ? "b" : "span", kept ? {} : { class: "lead" }, times(row[BASE]))),
      make("td", { class: "idea" }, make("bdi", {}, row[IDEA] || row[KNOBS])),
      make("td", { "data-label": "by" }, make("bdi", {}, words[row[AUTHOR]]), family && make("small", {}, " ", make("bdi", {}, family))),
      make("td", words[row[PHASE]] ? { "data-label": "phase" } : {}, words[row[PHASE]]));
  }

  const CALL = { k: 0, candidate: 1, model: 2, family: 3, outcome: 4, fault: 5, idea: 6, detail: 7, seconds: 8, attempts: 9, prompt: 10, cached: 11, completion: 12, reasoning: 13, cost: 14, estimated: 15, mends: 16 };
  function startCalls() {
    if (!data.calls.length) return;
    const form = $("call-filters"), calls = data.calls;
    const hays = calls.map((call) => `${call[CALL.idea]} ${call[CALL.detail]} ${words[call[CALL.model]]} ${words[call[CALL.fault]]} ${words[call[CALL.family]]}`.toLowerCase());
    const came = (call) => words[call[CALL.fault]] || words[call[CALL.outcome]];
    offer(form.elements.outcome, "all", tally(calls, came).map(([word, n]) => [word, `${spaced(word)} (${count(n)})`]));
    const show = pages($("call-list").tBodies[0], $("call-pager"), callLine);
    function choose() {
      const parts = form.elements.text.value.toLowerCase().split(/\s+/).filter(Boolean), outcome = form.elements.outcome.value;
      const found = calls.filter((call, at) => (!outcome || came(call) === outcome) && parts.every((part) => hays[at].includes(part)));
      $("calls-found").textContent = `${count(found.length)} of ${counted(calls.length, "call")}`;
      show(found.reverse());
    }
    form.addEventListener("input", choose);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("reset", () => setTimeout(choose));
    form.hidden = $("call-list").hidden = false;
    choose();
  }
  function callLine(call) {
    const outcome = words[call[CALL.outcome]], fault = words[call[CALL.fault]];
    const group = outcome === "fault" ? "stopped" : outcome === "proposal" ? "made" : "slow";
    const tries = call[CALL.attempts] > 1 ? ` · ${call[CALL.attempts]} attempts` : "";
    const mends = call[CALL.mends] ? ` · mends call ${call[CALL.mends]}` : "";
    const guess = call[CALL.estimated] ? "~" : "";
    return make("tr", { onclick: (event) => { if (call[CALL.candidate] && !event.target.closest("a")) open(call[CALL.candidate]); } },
      make("td", { class: "n" }, String(call[CALL.k])),
      make("td", {}, make("span", { class: `verdict ${group}` }, group === "made" ? "" : make("span", { class: `mark ${group}`, "aria-hidden": "true" }), spaced(fault || outcome)),
        ...(call[CALL.candidate] ? [" → ", make("a", { href: `#n${call[CALL.candidate]}` }, `#${call[CALL.candidate]}`)] : [])),
      make("td", { class: "idea" }, make("bdi", {}, [call[CALL.idea], call[CALL.detail]].filter(Boolean).join(" · ") || "–"), make("small", {}, make("bdi", {}, words[call[CALL.model]] + (words[call[CALL.family]] ? ` · ${words[call[CALL.family]]}` : "") + tries + mends))),
      make("td", { class: "num", "data-label": "prompt" }, guess + count(call[CALL.prompt]), call[CALL.cached] ? make("small", {}, ` (${count(call[CALL.cached])} cached)`) : ""),
      make("td", { class: "num", "data-label": "completion" }, guess + count(call[CALL.completion])),
      make("td", { class: "num", "data-label": "cost" }, fault ? "–" : money(call[CALL.cost])),
      make("td", { class: "num", "data-label": "waited" }, brief(call[CALL.seconds])));
  }

  // ---- the curve

  let logarithmic = null, cursor = null, paint = () => {};

  function startChart() {
    const box = $("chart");
    if (!rows.length) {
      box.replaceChildren(make("p", { class: "empty" }, "Nothing was tried yet."));
      $("chart-key").hidden = true;
      return;
    }
    $("scale").hidden = false;
    $("scale").addEventListener("click", () => { logarithmic = !scale().isLog; paint(); });
    paint = () => paintChart(box);
    box.tabIndex = 0;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", "Best so far by candidate; arrows move between candidates, Enter opens one");
    box.addEventListener("pointermove", (event) => point(nearest(event)));
    box.addEventListener("pointerleave", () => point(null));
    box.addEventListener("click", (event) => { const row = nearest(event); if (row) open(row[N]); });
    box.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: 10, ArrowDown: -10 }[event.key];
      if (step) {
        const at = cursor ? rows.indexOf(cursor) + step : step > 0 ? 0 : rows.length - 1;
        point(rows[Math.max(0, Math.min(rows.length - 1, at))]);
        event.preventDefault();
      }
      if (event.key === "Enter" && cursor) open(cursor[N]);
    });
    box.addEventListener("blur", () => point(null));
    let width = 0;
    new ResizeObserver(() => { if (box.clientWidth !== width) { width = box.clientWidth; paint(); } }).observe(box);
  }

  const wins = rows.filter((row) => verdictOf(row) === "kept" && row[BASE] !== null);
  const timed = rows.filter((row) => row[BASE] !== null && verdictOf(row) !== "kept");
  const refused = rows.filter((row) => row[BASE] === null && verdictOf(row) !== "pending");

  function extent() {
    let low = 1, high = 1;
    for (const row of timed) { low = Math.min(low, row[BASE]); high = Math.max(high, row[BASE]); }
    for (const row of wins) { low = Math.min(low, row[BASE_LOW] ?? row[BASE]); high = Math.max(high, row[BASE_HIGH] ?? row[BASE]); }
    return [Math.max(low, FLOOR), high];
  }
  /** Where candidates and speedups lie, for the width there is. */
  function scale() {
    const width = Math.max(280, $("chart").clientWidth), narrow = width < 560;
    const height = narrow ? 260 : 380, right = 14, top = 14, bottom = data.phases.length ? 46 : 36;
    const first = 0, last = Math.max(rows[rows.length - 1][N], 4);
    const [low, high] = extent();
    const isLog = logarithmic ?? high / low >= LOG_FROM;
    const room = Math.max(high - low, 0.05);
    const [from, to] = isLog ? [low * Math.pow(high / low, -0.08) * 0.995, high * Math.pow(high / low, 0.08) * 1.005] : [Math.max(0, low - 0.1 * room), high + 0.08 * room];
    const left = 14 + 7.2 * Math.max(3, ...ticks(from, to, isLog).map((value) => label(value).length));
    const floor = height - bottom - 16;
    const share = (value) => isLog ? Math.log(value / from) / Math.log(to / from) : (value - from) / (to - from);
    const x = (n) => left + (width - left - right) * (n - first) / (last - first) * 0.995;
    const y = (value) => Math.min(floor, floor - (floor - top) * share(Math.max(value, from)));
    return { width, height, left, right, top, bottom, floor, last, from, to, isLog, x, y, narrow };
  }
  function ticks(from, to, isLog) {
    if (!isLog || to / from < 3) {
      const raw = (to - from) / 5, size = Math.pow(10, Math.floor(Math.log10(raw)));
      const step = [1, 2, 2.5, 5, 10].map((each) => each * size).find((each) => each >= raw);
      const found = [];
      for (let value = Math.ceil(from / step) * step; value <= to; value += step) found.push(Number(value.toPrecision(6)));
      return found;
    }
    const found = [], subs = to / from < 1000 ? [1, 2, 5] : [1];
    for (let power = Math.floor(Math.log10(from)); power <= Math.ceil(Math.log10(to)); power += 1)
      for (const sub of subs) { const value = sub * Math.pow(10, power); if (value >= from && value <= to) found.push(Number(value.toPrecision(3))); }
    return found;
  }
  const label = (value) => value >= 1e4 ? `${value.toLocaleString("en-US", { notation: "compact" })}×` : `${value.toLocaleString("en-US", { maximumFractionDigits: 6 })}×`;
  const dots = (list, s) => list.map((row) => `M${s.x(row[N]).toFixed(1)} ${s.y(row[BASE]).toFixed(1)}h0`).join("");
  const strokes = (list, s) => list.map((row) => `M${s.x(row[N]).toFixed(1)} ${s.floor + 5}v9`).join("");

  function paintChart(box) {
    const s = scale(), svg = draw("svg", { viewBox: `0 0 ${s.width} ${s.height}`, height: s.height, "aria-hidden": "true" });
    $("scale").textContent = s.isLog ? "Linear axis" : "Log axis";
    $("scale").setAttribute("aria-pressed", String(logarithmic !== null));
    paintAxes(svg, s);
    paintPhases(svg, s);
    paintBest(svg, s);
    const thick = rows.length < 400 ? 6 : rows.length < 3000 ? 4 : 2.6, dim = isFiltered ? " dim" : "";
    const isLead = (row) => words[row[STAGE]] === "screen";
    svg.append(draw("path", { class: "dots" + dim, d: dots(timed.filter(isLead), s), "stroke-width": thick }));
    svg.append(draw("path", { class: "dots decided" + dim, d: dots(timed.filter((row) => !isLead(row)), s), "stroke-width": thick }));
    svg.append(draw("path", { class: "refused" + dim, d: strokes(refused, s) }));
    if (isFiltered) {
      svg.append(draw("path", { class: "hits", d: dots(chosen.filter((row) => row[BASE] !== null), s), "stroke-width": thick + 1.5 }));
      svg.append(draw("path", { class: "refused", d: strokes(chosen.filter((row) => row[BASE] === null), s) }));
    }
    paintWins(svg, s);
    svg.append(draw("circle", { class: "cursor", r: 7, cx: -20, cy: -20 }), draw("rect", { class: "hit", width: s.width, height: s.height, fill: "transparent" }));
    box.replaceChildren(svg, make("div", { class: "tip", hidden: "" }));
    point(cursor);
  }
  function paintAxes(svg, s) {
    for (const value of ticks(s.from, s.to, s.isLog)) {
      svg.append(draw("path", { class: value === 1 ? "grid one" : "grid", d: `M${s.left} ${s.y(value).toFixed(1)}H${s.width - s.right}` }));
      svg.append(draw("text", { x: s.left - 7, y: s.y(value) + 4, "text-anchor": "end" }, label(value)));
    }
    const step = ticks(0, s.last, false);
    for (const value of step.filter((each) => Number.isInteger(each) && each <= s.last))
      svg.append(draw("text", { x: s.x(value), y: s.height - s.bottom + 16, "text-anchor": value === 0 ? "start" : s.x(value) > s.width - 30 ? "end" : "middle" }, value === 0 ? "start" : count(value)));
  }
  function paintPhases(svg, s) {
    data.phases.forEach(([first, phase, family], at) => {
      const until = at + 1 < data.phases.length ? data.phases[at + 1][0] : s.last + 1;
      const from = s.x(Math.max(0, first - 0.5)), to = Math.max(from + 2, s.x(Math.min(s.last, until - 0.5)) - 1.5);
      const kind = ["sweep", "edit", "ablate"].includes(phase) ? phase : "other";
      svg.append(draw("rect", { class: `phase ${kind}`, x: from, width: to - from, y: s.height - 24, height: 5, rx: 2 }));
      const name = family ? `${phase} · ${family}` : phase;
      if (to - from > name.length * 6.6) svg.append(draw("text", { x: from, y: s.height - 5 }, name));
      else if (to - from > phase.length * 6.6) svg.append(draw("text", { x: from, y: s.height - 5 }, phase));
    });
  }
  function paintBest(svg, s) {
    let best = [1, 1, 1], top = "", line = "", lows = [];
    const end = s.x(s.last);
    const steps = [[0, best], ...wins.map((row) => [row[N], [row[BASE], row[BASE_LOW] ?? row[BASE], row[BASE_HIGH] ?? row[BASE]]])];
    steps.forEach(([n, [middle, low, high]], at) => {
      const from = s.x(n).toFixed(1), to = (at + 1 < steps.length ? s.x(steps[at + 1][0]) : end).toFixed(1);
      line += `${at ? "L" : "M"}${from} ${s.y(middle).toFixed(1)}L${to} ${s.y(middle).toFixed(1)}`;
      top += `${at ? "L" : "M"}${from} ${s.y(high).toFixed(1)}L${to} ${s.y(high).toFixed(1)}`;
      lows.push(`L${to} ${s.y(low).toFixed(1)}L${from} ${s.y(low).toFixed(1)}`);
    });
    svg.append(draw("path", { class: "band", d: `${top}${lows.reverse().join("")}Z` }), draw("path", { class: "step", d: line }));
  }
  function paintWins(svg, s) {
    if (wins.length <= 400) svg.append(draw("path", { class: "whiskers", d: wins.filter((row) => row[BASE_LOW] !== null).map((row) => `M${s.x(row[N]).toFixed(1)} ${s.y(row[BASE_LOW]).toFixed(1)}V${s.y(row[BASE_HIGH]).toFixed(1)}`).join("") }));
    const radius = Math.max(2, Math.min(5, s.width / 2.4 / wins.length));
    for (const row of wins) svg.append(draw("circle", { class: "win", cx: s.x(row[N]).toFixed(1), cy: s.y(row[BASE]).toFixed(1), r: radius, "data-n": row[N] }));
    for (const row of named(s)) svg.append(draw("text", { class: "name", x: s.x(row[N]) - 7, y: s.y(row[BASE]) - 8, "text-anchor": s.x(row[N]) < s.left + 30 ? "start" : "end" }, `#${row[N]}`));
  }
  /** The greatest steps whose names do not run into each other. */
  function named(s) {
    const gain = new Map(wins.map((row, at) => [row, row[BASE] / (at ? wins[at - 1][BASE] : 1)])), found = [];
    for (const row of [...wins].sort((a, b) => gain.get(b) - gain.get(a)).slice(0, 60))
      if (found.length < 14 && found.every((other) => Math.abs(s.x(other[N]) - s.x(row[N])) > 38 || Math.abs(s.y(other[BASE]) - s.y(row[BASE])) > 22)) found.push(row);
    return found;
  }
  const heightOf = (row, s) => row[BASE] === null ? s.floor + 9 : s.y(row[BASE]);
  function nearest(event) {
    const frame = $("chart").getBoundingClientRect(), s = scale();
    const px = (event.clientX - frame.left) * s.width / frame.width, py = event.clientY - frame.top;
    let best = null, least = event.pointerType === "touch" ? 34 : 26;
    for (const row of isFiltered ? [...chosen, ...wins] : rows) {
      const away = Math.hypot(s.x(row[N]) - px, heightOf(row, s) - py) - (verdictOf(row) === "kept" ? 4 : 0);
      if (away < least) { least = away; best = row; }
    }
    return best;
  }
  function point(row) {
    cursor = row;
    const box = $("chart"), tip = box.querySelector(".tip"), circle = box.querySelector(".cursor");
    if (!tip) return;
    tip.hidden = !row;
    if (!row) { circle.setAttribute("cx", -20); return; }
    const s = scale(), x = s.x(row[N]), y = heightOf(row, s);
    circle.setAttribute("cx", x);
    circle.setAttribute("cy", y);
    tip.replaceChildren(make("div", {}, make("b", {}, `#${row[N]} `), chip(verdictOf(row))),
      make("div", {}, row[BASE] === null ? "never timed" : `${times(row[BASE])} over the baseline ${between(row[BASE_LOW], row[BASE_HIGH])}`),
      make("small", {}, verdictOf(row) === "kept" ? "" : stageOf(row)),
      make("small", {}, make("bdi", {}, (row[IDEA] || row[KNOBS]).slice(0, 120))));
    const left = Math.max(0, Math.min(s.width - tip.offsetWidth, x - tip.offsetWidth / 2));
    tip.style.left = `${left}px`;
    tip.style.top = `${y - tip.offsetHeight - 14 < 0 ? y + 14 : y - tip.offsetHeight - 14}px`;
  }

  // ---- one candidate

  const sheet = $("sheet");
  let shown = null, returnTo = null, ours = false;

  /** Through the address, so that back, forward and a link do the same as a click. */
  function open(n) { location.hash = `n${n}`; }
  function close() {
    if (ours) history.back();
    else { history.replaceState(null, "", location.pathname + location.search); follow(); }
  }
  function follow(event) {
    const found = /^#n(\d+)$/.exec(location.hash), row = found && byNumber.get(Number(found[1]));
    if (!row) {
      shown = null;
      if (sheet.open) sheet.close();
      if (returnTo && returnTo.isConnected) returnTo.focus({ preventScroll: true });
      returnTo = null;
      return;
    }
    if (!sheet.open) { returnTo = document.activeElement; ours = Boolean(event); sheet.showModal(); }
    fill(row);
  }
  /** Another candidate in the same sheet leaves no trail of its own: Back closes it. */
  function turn(n) { history.replaceState(null, "", `#n${n}`); fill(byNumber.get(n)); }

  async function fill(row) {
    shown = row[N];
    const body = make("div"), inner = sheet.firstElementChild;
    inner.replaceChildren(sheetHead(row), body);
    sheet.scrollTop = 0;
    sheet.querySelector("[data-close]").focus({ preventScroll: true });
    const facts = await fetchPart("facts", factsAt, row[N]);
    if (shown !== row[N]) return;
    body.append(...tell(row, facts.value || {}), ...(facts.trouble ? [make("p", { class: "note" }, facts.trouble)] : []));
    const diff = await fetchPart("diffs", diffsAt, row[N]);
    if (shown !== row[N]) return;
    body.append(make("h3", {}, "Change"), ...showDiff(row, diff, facts.value || {}));
  }
  async function fetchPart(kind, places, n) {
    if (!places.has(n)) return {};
    try {
      return { value: (await unpack(`${kind}-${places.get(n)}`))[n] };
    } catch {
      return { trouble: "This browser cannot unpack the details in this page; use a current one, or 'hillclimb show'." };
    }
  }
  function sheetHead(row) {
    const list = chosen.includes(row) ? chosen : [...rows].sort(orders.newest), at = list.indexOf(row);
    const step = (text, label, to) => make("button", { type: "button", "aria-label": label, ...(to ? { onclick: () => turn(to[N]) } : { disabled: "" }) }, text);
    return make("header", {}, make("h2", { id: "sheet-title" }, `#${row[N]}`), chip(verdictOf(row)),
      make("div", { class: "tools" }, step("‹", "Previous in the list", list[at - 1]), step("›", "Next in the list", list[at + 1]),
        make("button", { type: "button", "data-close": "", onclick: close }, "Close")));
  }
  const tile = (name, value, extra) => make("div", { class: "tile" }, make("dt", {}, name), make("dd", {}, value, extra ? make("small", {}, " ", extra) : ""));
  const fact = (name, ...value) => make("div", {}, make("dt", {}, name), make("dd", {}, ...value));
  const link = (n) => byNumber.has(n) ? make("a", { href: `#n${n}`, onclick: (event) => { event.preventDefault(); turn(n); } }, `#${n}`) : `#${n}`;

  function tell(row, facts) {
    const verdict = verdictOf(row), why = verdict === "kept" ? "Proven faster over fresh pairs of processes, and committed." : (reasons.get(verdict) || ["", ""])[1];
    const parts = [make("p", { class: "title" }, make("bdi", {}, facts.idea || row[IDEA] || row[KNOBS] || "no idea given"))];
    if (why) parts.push(make("p", { class: "about" }, why));
    if (facts.detail || row[DETAIL]) parts.push(make("div", { class: "detail" }, make("bdi", {}, facts.detail || row[DETAIL])));
    const tiles = [];
    if (words[row[STAGE]] === "report") tiles.push(tile("over the incumbent", times(row[STEP]), between(row[STEP_LOW], row[STEP_HIGH])));
    if (verdict === "kept") tiles.push(tile("over the baseline", times(row[BASE]), between(row[BASE_LOW], row[BASE_HIGH])));
    if (facts.decided) tiles.push(tile("decided", times(facts.decided[0]), facts.decided[1] === null ? "one fresh pair" : between(facts.decided[1], facts.decided[2])));
    if (facts.screened !== undefined) tiles.push(tile("screened", times(facts.screened), words[row[STAGE]] === "screen" ? "one pair, a lead" : "one pair, measured afresh since"));
    if (facts.spc !== undefined) tiles.push(tile("per call", brief(facts.spc)));
    if (facts.e !== undefined) tiles.push(tile("e-value", short(facts.e), facts.alpha ? `needed ${short(1 / facts.alpha)}` : ""));
    if (row[SECONDS]) tiles.push(tile("judged in", brief(row[SECONDS])));
    if (tiles.length) parts.push(make("dl", { class: "tiles" }, ...tiles));
    parts.push(origin(row, facts));
    if (facts.gate) parts.push(...gate(facts));
    if (facts.stages) parts.push(make("h3", {}, "Measurements"), stages(facts.stages));
    return parts;
  }
  function origin(row, facts) {
    const list = make("dl", { class: "facts" }, fact("by", make("bdi", {}, words[row[AUTHOR]]), words[row[FAMILY]] ? make("bdi", {}, ` · ${words[row[FAMILY]]}`) : "", words[row[PHASE]] ? ` · phase ${words[row[PHASE]]}` : ""));
    if (facts.time) list.append(fact("when", facts.time));
    if (facts.undoes) list.append(fact("takes back", link(facts.undoes)));
    if (facts.call) list.append(fact("model call", String(facts.call)));
    if (facts.knobs) list.append(fact("knobs", make("code", {}, Object.entries(facts.knobs).map((pair) => pair.join("=")).join("  "))));
    if (facts.files) list.append(fact("files", ...facts.files.flatMap((path, at) => [at ? ", " : "", make("code", {}, make("bdi", {}, path))])));
    if (facts.commit) list.append(fact("commit", make("code", { class: "digest" }, facts.commit)));
    if (facts.parent) list.append(fact("on incumbent", make("code", { class: "digest" }, facts.parent)));
    if (facts.ref) list.append(fact("ref", make("code", { class: "digest" }, facts.ref)));
    if (facts.post) list.append(fact("post", facts.post));
    return list;
  }
  function gate(facts) {
    const { passed, runs, worst, at, detail } = facts.gate;
    const list = make("dl", { class: "facts" }, fact("gate", passed ? "passed" : "failed", `, ${counted(runs, "call")} compared with the reference`));
    if (worst) list.append(fact("largest error", `${short(worst)} of the budget`, at ? make("bdi", {}, ` at ${at}`) : ""));
    if (detail && detail !== facts.detail) list.append(fact("detail", make("bdi", {}, detail)));
    for (const [suite, ok, estimate, low, high, most] of facts.rails || [])
      list.append(fact(`guardrail ${suite}`, `${ok ? "holds" : "broken"}: ${times(estimate)} ${between(low, high)}, at most ${short(100 * most)} % slower allowed`));
    for (const [suite, name, unit, before, value, gain, low, high] of facts.metrics || [])
      list.append(fact(`${suite} ${name}`, `${short(before)} → ${short(value)} ${unit}, ${times(gain)} ${between(low, high)}`));
    return [make("h3", {}, "Gate and guardrails"), list];
  }
  function stages(list) {
    const head = make("tr", {}, ...["stage", "suite", "pairs", "blocks", "median of pairs", "smallest to largest", "dropped", "other load"].map((name, at) => make("th", { scope: "col", class: at > 1 ? "num" : "" }, name)));
    const lines = list.map(([stage, suite, pairs, blocks, dropped, middle, low, high, steal, others]) => make("tr", {},
      make("th", { scope: "row" }, stage), make("td", {}, suite), ...[count(pairs), count(blocks), times(middle), middle === null || pairs < 2 ? "–" : `${times(low)} to ${times(high)}`, count(dropped), `${short(others)} CPUs, ${short(100 * steal)} % stolen`].map((value) => make("td", { class: "num" }, value))));
    return make("div", { class: "scroll" }, make("table", { class: "plain" }, make("thead", {}, head), make("tbody", {}, ...lines)));
  }
  function showDiff(row, diff, facts) {
    if (diff.trouble) return [make("p", { class: "note" }, diff.trouble)];
    const show = facts.commit ? `git show ${facts.commit}` : `hillclimb show ${row[N]}`;
    if (!diff.value) return [make("p", { class: "empty" }, undiffed.has(row[N]) ? `Left out to keep this page small: wins come first, then the newest. See ${show}` : verdictOf(row) === "pending" ? "Not judged yet." : "No diff was made for it.")];
    const [text, note] = diff.value, parts = [];
    if (note) parts.push(make("p", { class: "about" }, make("bdi", {}, note)));
    if (text) parts.push(make("div", { class: "diff", tabindex: "0", role: "region", "aria-label": "Diff", translate: "no" }, ...text.replace(/\n$/, "").split("\n").map(diffLine())));
    return parts.length ? parts : [make("p", { class: "empty" }, "It changes no file.")];
  }
  /** A line's element; inside a hunk a line may begin with anything, so the hunk's own counts say where it ends. */
  function diffLine() {
    let before = 0, after = 0;
    return (line) => {
      let kind = "meta";
      const hunk = /^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@/.exec(line);
      if (before > 0 || after > 0) {
        kind = line[0] === "+" ? "add" : line[0] === "-" ? "cut" : "";
        if (line[0] !== "+" && line[0] !== "\\") before -= 1;
        if (line[0] !== "-" && line[0] !== "\\") after -= 1;
      } else if (hunk) {
        kind = "hunk";
        before = Number(hunk[1] ?? 1);
        after = Number(hunk[2] ?? 1);
      } else if (line.startsWith("diff --git ")) kind = "file";
      return make("div", { class: kind }, line || " ");
    };
  }

  function startSheet() {
    sheet.addEventListener("cancel", (event) => { event.preventDefault(); close(); });
    sheet.addEventListener("click", (event) => { if (event.target === sheet) close(); });
    sheet.addEventListener("keydown", (event) => {
      if (event.target.closest(".diff")) return;
      if (event.key === "ArrowLeft") sheet.querySelector(".tools button:nth-child(1)").click();
      if (event.key === "ArrowRight") sheet.querySelector(".tools button:nth-child(2)").click();
    });
    addEventListener("hashchange", follow);
    follow();
  }

  startTheme();
  startChart();
  startList();
  startCalls();
  startSheet();
})();
