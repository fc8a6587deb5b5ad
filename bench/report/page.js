"use strict";
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const hidden = new Set();
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const DASHES = [[], [6, 4], [2, 3], [10, 3, 2, 3], [1, 5]];
  let round = null;

  const si = (value, unit, step, names) => {
    let n = 0;
    while (Math.abs(value) >= step && n < names.length - 1) { value /= step; n++; }
    const digits = Math.abs(value) >= 100 || value === 0 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
    return value.toFixed(digits) + (names[n] || unit ? " " : "") + names[n] + unit;
  };
  const trim = (value) => Math.abs(value) >= 1e7 ? si(value, "", 1000, ["", "k", "M", "G"]).replace(" ", "")
    : Math.abs(value) >= 100 ? Math.round(value).toLocaleString("en-US") : String(+value.toPrecision(3));
  const BINARY_STEPS = Array.from({ length: 44 }, (_, n) => 2 ** n);
  const FORMATS = {
    none: trim,
    cps: (v) => trim(v) + "/s",
    mps: (v) => trim(v) + "/s",
    bytes: (v) => si(v, "B", 1024, ["", "Ki", "Mi", "Gi"]),
    Bps: (v) => si(v, "B/s", 1000, ["", "k", "M", "G"]),
    s: (v) => v === 0 ? "0" : v >= 1 ? +v.toPrecision(3) + " s" : v >= 1e-3 ? +(v * 1e3).toPrecision(3) + " ms" : +(v * 1e6).toPrecision(3) + " µs",
  };
  const shown = (unit, v) => v == null ? "–" : (FORMATS[unit] || trim)(v);

  function element(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  function legendRow(line, unit) {
    const there = line.values.filter((v) => v != null);
    const mean = there.length ? there.reduce((a, b) => a + b, 0) / there.length : null;
    const stroke = element("i", { class: "stroke", style: `border-top-color:${line.colour};border-top-style:${line.dash.length ? line.dash[0] > 3 ? "dashed" : "dotted" : "solid"}` });
    return element("tr", {}, element("td", {}, stroke, line.name), element("td", {}, shown(unit, mean)),
      element("td", {}, shown(unit, there.length ? Math.max(...there) : null)),
      element("td", {}, shown(unit, there.length ? there[there.length - 1] : null)));
  }

  function legend(lines, unit) {
    const head = element("tr", {}, ...["", "mean", "max", "last"].map((t) => element("th", {}, t)));
    return element("div", { class: "legend", tabindex: "0" }, element("table", {}, element("thead", {}, head),
      element("tbody", {}, ...lines.map((line) => legendRow(line, unit)))));
  }

  /* All lines of a panel on one axis of whole seconds; a second without a sample is a gap that is bridged. */
  function linesOf(servers, key) {
    const lines = [];
    for (const server of data.order) {
      if (hidden.has(server) || !servers[server]) continue;
      servers[server][key].forEach(([name, seconds, values], n) => {
        lines.push({ name: `${server} ${name}`.trim(), at: new Map(seconds.map((t, i) => [t, values[i]])), values,
          colour: data.colours[server], dash: DASHES[n % DASHES.length] });
      });
    }
    return lines;
  }

  function shadeWindow(length) {
    return (u) => {
      if (!length) return;
      const left = Math.max(u.valToPos(0, "x", true), u.bbox.left);
      const right = Math.min(u.valToPos(length, "x", true), u.bbox.left + u.bbox.width);
      u.ctx.save();
      u.ctx.fillStyle = dark.matches ? "rgba(255,255,255,0.05)" : "rgba(0,0,0,0.045)";
      u.ctx.fillRect(left, u.bbox.top, Math.max(0, right - left), u.bbox.height);
      u.ctx.restore();
    };
  }

  function drawPanel(box, panel, servers) {
    const lines = linesOf(servers, panel.key);
    const card = element("div", { class: "panel" }, element("h4", {}, panel.title), element("p", {}, panel.about));
    box.append(card);
    if (!lines.length) {
      card.append(element("p", {}, "No samples in this round."));
      return;
    }
    const xs = [...new Set(lines.flatMap((l) => [...l.at.keys()]))].sort((a, b) => a - b);
    const ink = getComputedStyle(document.body).getPropertyValue("--quiet").trim();
    const grid = getComputedStyle(document.body).getPropertyValue("--line").trim();
    const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid } };
    const length = Math.max(...Object.values(servers).map((s) => s.window_s || 0));
    const range = (u, low, high) => [Math.min(0, low * 1.08), high > 0 ? high * 1.08 : 1];
    const plot = {
      width: Math.max(200, card.clientWidth - 20), height: 240, legend: { show: false },
      cursor: { y: false, points: { size: 5 } },
      scales: { x: { time: false }, y: panel.log ? { distr: 3 } : { range } },
      axes: [Object.assign({ values: (u, vs) => vs.map((v) => `${v} s`) }, axis),
        Object.assign({ size: 74, values: (u, vs) => vs.map((v) => v == null ? null : shown(panel.unit, v)) }, axis,
          panel.unit === "bytes" ? { incrs: BINARY_STEPS } : {})],
      series: [{}].concat(lines.map((l) => ({ label: l.name, stroke: l.colour, width: 1.6, dash: l.dash, spanGaps: true,
        points: { show: xs.length < 3 } }))),
      hooks: { drawClear: [shadeWindow(length)] },
    };
    new uPlot(plot, [xs].concat(lines.map((l) => xs.map((t) => l.at.has(t) ? l.at.get(t) : null))), card);
    card.append(legend(lines, panel.unit));
  }

  const inWindow = (servers, server, key, pick) => {
    const length = servers[server].window_s;
    const found = servers[server][key].filter(([name]) => pick === undefined || name === pick);
    return found.flatMap(([, seconds, values]) => values.filter((v, i) => length == null || (seconds[i] >= 0 && seconds[i] <= length)));
  };
  const top = (values) => values.length ? Math.max(...values) : null;

  function statistics(box, servers) {
    const names = data.order.filter((s) => servers[s] && !hidden.has(s));
    const mean = (vs) => vs.length ? vs.reduce((a, b) => a + b, 0) / vs.length : null;
    const connections = (s) => top(inWindow(servers, s, "connections", "open"));
    const perConnection = (s) => connections(s) ? top(inWindow(servers, s, "rss")) / connections(s) : null;
    const tiles = [["Mean CPU in cores", "none", (s) => mean(inWindow(servers, s, "cpu"))],
      ["Peak resident memory", "bytes", (s) => top(inWindow(servers, s, "rss"))],
      ["Resident memory per connection", "bytes", perConnection],
      ["Connections", "none", connections]];
    box.append(element("div", { class: "stats" }, ...tiles.map(([title, unit, value]) => element("div", { class: "panel" },
      element("h4", {}, title), element("table", {}, element("tbody", {}, ...names.map((s) => element("tr", {},
        element("td", {}, element("i", { class: "dot", style: `background:${data.colours[s]}` }), s),
        element("td", {}, shown(unit, value(s)))))))))));
  }

  function draw(box) {
    box.textContent = "";
    const rounds = data.series[box.dataset.workload];
    if (!rounds || typeof uPlot === "undefined") return;
    const servers = rounds[round] || rounds[Object.keys(rounds)[0]];
    box.append(element("h3", {}, data.rows[1]));
    statistics(box, servers);
    let row = 1;
    for (const panel of data.panels) {
      if (panel.row !== row) {
        row = panel.row;
        box.append(element("h3", {}, data.rows[row]));
      }
      drawPanel(box, panel, servers);
    }
  }

  /* One workload after the other, so that the page answers while a long run with hundreds of charts is drawn. */
  const boxes = [...document.querySelectorAll(".panels")];
  let pass = 0;
  function redraw() {
    const mine = ++pass;
    let next = 0;
    const step = () => {
      if (mine !== pass || next >= boxes.length) return;
      draw(boxes[next++]);
      setTimeout(step, 0);
    };
    step();
  }

  const rounds = [...new Set(Object.values(data.series).flatMap((r) => Object.keys(r)))].sort((a, b) => a - b);
  const select = document.getElementById("round");
  rounds.forEach((r) => select.append(element("option", { value: r }, r)));
  round = rounds[0];
  select.addEventListener("change", () => { round = select.value; redraw(); });

  const chips = document.getElementById("servers");
  for (const server of data.order) {
    const chip = element("button", { type: "button", "aria-pressed": "true", title: "show or hide in the charts" },
      element("i", { class: "dot", style: `background:${data.colours[server]}` }), server);
    chip.addEventListener("click", () => {
      if (!hidden.delete(server)) hidden.add(server);
      chip.setAttribute("aria-pressed", String(!hidden.has(server)));
      redraw();
    });
    chips.append(chip);
  }
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; redraw(); } });
  dark.addEventListener("change", redraw);
  redraw();
})();
