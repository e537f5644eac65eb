"use strict";
(() => {
  const WIDTH = 8, HEIGHT = 14, LISTED = 12;
  const $ = (id) => document.getElementById(id);
  const data = JSON.parse($("data").textContent);
  const chosen = new Set(data.chosen);
  const map = $("map"), pen = map.getContext("2d"), cells = document.createElement("canvas");
  const best = data.milliseconds.map((row) => Math.min(...row.filter((time) => time !== null)));
  const share = (row, column) => {
    const time = data.milliseconds[row][column];
    return time === null ? null : best[row] / time;
  };
  let rows = [], columns = [], open = null, at = null;

  const has = (text, parts) => parts.every((part) => text.includes(part));
  const parts = (id) => $(id).value.toLowerCase().split(/\s+/).filter(Boolean);
  const colour = (value) => {
    const place = (value - data.lowest) / (1 - data.lowest);
    return data.shades[Math.round(Math.max(0, Math.min(1, place)) * (data.shades.length - 1))];
  };

  // A shape that is open orders the kernels; else they stand as they came, the best in the mean first.
  function choose() {
    const shapes = parts("shapes"), kernels = parts("kernels"), only = $("chosen").checked;
    rows = data.shapes.map((_, row) => row).filter((row) => {
      const shape = data.shapes[row];
      return has(`${shape.name} ${shape.size} ${shape.dtype}`.toLowerCase(), shapes);
    });
    columns = data.kernels.map((_, column) => column).filter((column) => {
      const name = data.kernels[column];
      return has(name.toLowerCase(), kernels) && (!only || chosen.has(name));
    });
    if (open !== null) columns.sort((one, other) => (share(open, other) ?? -1) - (share(open, one) ?? -1) || one - other);
    at = null;
    paint();
    $("names").replaceChildren(...rows.map(nameOf));
    $("shown").textContent = `${rows.length} of ${data.shapes.length} shapes, ${columns.length} of ${data.kernels.length} kernels`;
  }

  const property = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);

  // Aside, for a pointer that moves draws the whole again.
  function paint() {
    cells.width = map.width = Math.max(1, columns.length * WIDTH);
    cells.height = map.height = Math.max(1, rows.length * HEIGHT);
    const brush = cells.getContext("2d");
    brush.fillStyle = property("--sunk");
    brush.fillRect(0, 0, cells.width, cells.height);
    rows.forEach((row, y) => columns.forEach((column, x) => {
      const value = share(row, column);
      if (value === null) return;
      brush.fillStyle = colour(value);
      brush.fillRect(x * WIDTH, y * HEIGHT, WIDTH, HEIGHT);
    }));
    brush.fillStyle = property("--stopped");
    columns.forEach((column, x) => {
      if (chosen.has(data.kernels[column])) brush.fillRect(x * WIDTH, 0, 1, cells.height);
    });
    draw();
  }

  function draw() {
    pen.drawImage(cells, 0, 0);
    if (!at) return;
    pen.strokeStyle = property("--ink");
    pen.lineWidth = 2;
    pen.strokeRect(at.x * WIDTH + 1, at.y * HEIGHT + 1, WIDTH - 2, HEIGHT - 2);
  }

  function nameOf(row) {
    const button = document.createElement("button");
    button.textContent = data.shapes[row].name;
    button.tabIndex = -1;
    button.dataset.row = row;
    button.className = row === open ? "open" : "";
    return button;
  }

  function tell() {
    if (!at) return;
    const row = rows[at.y], column = columns[at.x], value = share(row, column), shape = data.shapes[row];
    const time = value === null ? "no time" : `${data.milliseconds[row][column]} ms, ${value.toFixed(3)} of the best`;
    $("cell").textContent = `${shape.name} (${shape.size}, ${shape.dtype})\n${data.kernels[column]}\n${time}`;
  }

  function go(x, y) {
    if (!rows.length || !columns.length) return;
    at = { x: Math.max(0, Math.min(columns.length - 1, x)), y: Math.max(0, Math.min(rows.length - 1, y)) };
    draw();
    tell();
  }

  function show(row) {
    open = open === row ? null : row;
    const listed = open === null ? [] : data.kernels
      .map((name, column) => ({ name, time: data.milliseconds[open][column], value: share(open, column) }))
      .filter((one) => one.value !== null)
      .sort((one, other) => other.value - one.value)
      .slice(0, LISTED);
    $("shape").textContent = open === null ? "" : `The best for ${data.shapes[open].name}`;
    $("best").hidden = open === null;
    $("best").tBodies[0].replaceChildren(...listed.map((one) => {
      const line = document.createElement("tr");
      line.className = chosen.has(one.name) ? "chosen" : "";
      for (const [text, kind] of [[one.name, ""], [String(one.time), "number"], [one.value.toFixed(3), "number"]]) {
        const cell = line.insertCell();
        cell.textContent = text;
        cell.className = kind;
      }
      return line;
    }));
    choose();
  }

  const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  $("view").addEventListener("keydown", (event) => {
    if (event.key in STEPS) {
      const [x, y] = STEPS[event.key];
      if (at) go(at.x + x, at.y + y); else go(0, 0);
      event.preventDefault();
    } else if (event.key === "Enter" && at) {
      show(rows[at.y]);
    }
  });
  map.addEventListener("mousemove", (event) => go(Math.floor(event.offsetX / WIDTH), Math.floor(event.offsetY / HEIGHT)));
  map.addEventListener("click", (event) => show(rows[Math.floor(event.offsetY / HEIGHT)]));
  $("names").addEventListener("click", (event) => {
    if (event.target.dataset.row) show(Number(event.target.dataset.row));
  });
  $("wish").addEventListener("input", choose);
  $("wish").addEventListener("submit", (event) => event.preventDefault());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);

  const scale = $("scale").getContext("2d");
  data.shades.forEach((shade, place) => {
    scale.fillStyle = shade;
    scale.fillRect((place * 128) / data.shades.length, 0, 128 / data.shades.length + 1, 10);
  });
  $("lowest").textContent = `${data.lowest} or less`;
  $("chosen").disabled = !chosen.size;
  choose();
})();
