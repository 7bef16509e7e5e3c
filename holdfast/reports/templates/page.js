"use strict";
// Draws the charts described in #charts. The style sheet sets the colours, for light and dark mode.
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const root = document.documentElement;
  const HUES = 8, NARROW = 560;
  // after HUES methods the colours repeat, with the next dash and pattern
  const DASHES = ["solid", "dash", "dot", "dashdot"], PATTERNS = ["", "/", "-", "x"];
  const hidden = new Set();
  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const hue = (number) => css(`--hue${number % HUES}`);
  const lap = (number) => Math.floor(number / HUES) % DASHES.length;
  const faint = (colour, share) => colour + Math.round(255 * share).toString(16).padStart(2, "0");
  // plotly interprets tags in texts, but names must be shown as they are
  const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const known = (values) => values.filter((v) => v !== null);
  // labels are never cut: they wrap after a plus or a space, and within a word only if it is longer than a line
  function wrap(text, most) {
    const lines = [""];
    for (const piece of text.split(/(?<=[+ ])/)) {
      const whole = piece.trimEnd().length > most ? piece.match(new RegExp(`.{1,${most}}`, "gs")) : [piece];
      for (const part of whole) {
        if (lines.at(-1) && (lines.at(-1) + part).trimEnd().length > most) lines.push("");
        lines[lines.length - 1] += part;
      }
    }
    return lines.map((line) => line.trimEnd());
  }
  const wrapped = (text, most) => wrap(text, most).map(plain).join("<br>");

  function layout(height, margin) {
    return {
      height, margin, showlegend: false, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12.5, color: css("--muted") },
      hoverlabel: { bgcolor: css("--card"), bordercolor: css("--line"), font: { color: css("--ink"), size: 13 }, align: "left" },
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    };
  }
  const axis = (more) => ({ showgrid: false, zeroline: false, showline: false, ticks: "", automargin: true, ...more });

  function number(value) {
    const size = Math.abs(value);
    return size >= 100 ? ",.0f" : size >= 1 ? ",.2f" : ".3f";
  }

  function lines(chart, width) {
    const shown = chart.series.filter((s) => !hidden.has(s.label));
    const direct = width >= NARROW && chart.series.length > 1;
    const bands = [], curves = [], ends = [];
    let low = Infinity, high = -Infinity;
    for (const s of shown) {
      const colour = hue(s.hue);
      const at = s.x.map((_, i) => i).filter((i) => s.y[i] !== null);
      const up = at.map((i) => s.y[i] + (s.spread[i] ?? 0)), down = at.map((i) => s.y[i] - (s.spread[i] ?? 0));
      low = Math.min(low, ...down);
      high = Math.max(high, ...up);
      if (at.some((i) => s.spread[i])) {
        const x = at.map((i) => s.x[i]);
        bands.push({ x: [...x, ...x.toReversed()], y: [...up, ...down.toReversed()], fill: "toself", mode: "lines", hoverinfo: "skip", showlegend: false,
          fillcolor: faint(colour, shown.length > 3 ? 0.09 : 0.15), line: { width: 0, shape: "linear" } });
      }
      const shape = chart.percent ? ".1%" : number(Math.max(...known(s.y).map(Math.abs)));
      const spread = s.spread.map((v) => (v === null ? "" : " ± " + (chart.percent ? (100 * v).toFixed(1) : v.toPrecision(2))));
      curves.push({ x: s.x, y: s.y, name: wrapped(s.label, 44), customdata: spread, mode: s.x.length > 1 ? "lines" : "markers",
        hovertemplate: `%{y:${shape}}%{customdata}<extra>${wrapped(s.label, 40)}</extra>`, meta: s.label,
        line: { color: colour, width: 2.2, dash: DASHES[lap(s.hue)] }, marker: { color: colour, size: 8 } });
      if (at.length) ends.push({ y: s.y[at[at.length - 1]], label: s.label, colour });
    }
    const { floor, ticks: names } = chart, shapes = [];
    if (names.length) for (const c of curves) c.mode = "lines+markers";
    if (floor) {
      low = Math.min(low, floor.value);
      high = Math.max(high, floor.value);
      shapes.push({ type: "line", xref: "paper", x0: 0, x1: 1, y0: floor.value, y1: floor.value, line: { color: css("--muted"), width: 1, dash: "dash" } });
      ends.push({ y: floor.value, label: floor.name, colour: css("--muted"), floor: true });
    }
    const half = chart.percent ? 0.05 : 0.5; // of an axis on which nothing differs
    if (!(high > low)) { high += half; low -= half; }
    const most = width < 700 ? 18 : 28;
    for (const e of ends) e.lines = wrap(e.label, most);
    const written = ends.filter((e) => direct || e.floor);
    // the legend at the top has the entries; where names do not fit beside the lines of methods, the chart has its own
    const keyed = names.length > 0 && !direct;
    const room = 0.06 * (high - low), height = (width < NARROW ? 260 : chart.tall ? 400 : 300) + (keyed ? 22 * chart.series.length : 0);
    const right = direct || (floor && width >= NARROW) ? 16 + 7 * Math.max(0, ...written.flatMap((e) => e.lines.map((l) => l.length))) : 14;
    const margin = { l: 46, r: right, t: 10, b: keyed ? 50 + 22 * chart.series.length : 40 };
    // a band of deviations may go beyond what a percentage can be
    const range = chart.percent ? [Math.max(low - room, -0.01), Math.min(high + room, 1.01)] : [low - room, high + room];
    const line = 17 / (height - margin.t - margin.b);
    for (const e of written) { e.at = (e.y - range[0]) / (range[1] - range[0]); e.size = line * e.lines.length; }
    spreadOut(written);
    const where = { x: 1, xref: "paper", yref: "paper", showarrow: false };
    const beside = (e) => ({ ...where, y: e.at, xanchor: "left", yanchor: "middle", xshift: 6, align: "left" });
    const above = (e) => ({ ...where, y: e.y, yref: "y", xanchor: "right", yanchor: "bottom" });
    const rounds = { tickformat: "d", tick0: 0, dtick: step(chart, width / 80) };
    const values = { tickmode: "array", tickvals: names.map((_, i) => i), ticktext: names.map((n) => wrapped(n, 16)), range: [-0.15, names.length - 0.85] };
    return { data: [...bands, ...curves], layout: { ...layout(height, margin), hovermode: "x unified", shapes,
      showlegend: keyed, legend: { orientation: "v", x: 0, xanchor: "left", y: 0, yref: "container", yanchor: "bottom", font: { size: 12.5, color: css("--ink") }, itemclick: false, itemdoubleclick: false },
      xaxis: axis({ title: { text: plain(chart.across), standoff: 8, font: { size: 12.5 } }, ...(names.length ? values : rounds),
        unifiedhovertitle: { text: `${plain(chart.across)} %{x}` }, spikecolor: css("--muted"), spikethickness: 1, spikedash: "solid" }),
      yaxis: axis({ range, showgrid: true, gridcolor: css("--line"), tickformat: chart.percent ? ".1~%" : "~g", nticks: 6 }),
      annotations: written.map((e) => ({ ...(width >= NARROW ? beside(e) : above(e)), text: e.lines.map(plain).join("<br>"), font: { color: e.colour, size: 12.5 } })) } };
  }

  // rounds are whole numbers: the distance between ticks is 1, 2, 5, 10, 20, ...
  function step(chart, most) {
    const rounds = chart.series.flatMap((s) => s.x), span = Math.max(...rounds) - Math.min(...rounds);
    for (let unit = 1; ; unit *= 10) {
      for (const times of [1, 2, 5]) if (span / (unit * times) <= most) return unit * times;
    }
  }

  function spreadOut(ends) {
    ends.sort((a, b) => a.at - b.at);
    for (let turn = 0; turn < 50; turn++) {
      for (let i = 1; i < ends.length; i++) {
        const short = (ends[i].size + ends[i - 1].size) / 2 - (ends[i].at - ends[i - 1].at);
        if (short > 1e-9) { ends[i - 1].at -= short / 2; ends[i].at += short / 2; }
      }
    }
    let top = 1;
    for (const e of ends.toReversed()) { e.at = Math.min(e.at, top - e.size / 2); top = e.at - e.size / 2; }
  }

  // a target that only some seeds reached has an outlined bar
  function filling(s) {
    const colour = hue(s.hue);
    const fills = s.hollow.map((h) => (h ? faint(colour, 0.1) : colour));
    return { color: fills, line: { color: colour, width: s.hollow.map((h) => (h ? 1.5 : 0)) },
      pattern: { shape: PATTERNS[lap(s.hue)], bgcolor: css("--card"), size: 7, solidity: 0.6 } };
  }

  function bars(chart, width) {
    const shown = chart.series.filter((s) => !hidden.has(s.label));
    const top = chart.most ?? Math.max(1e-9, ...chart.series.flatMap((s) => known(s.values)));
    const named = chart.series.length > 1 && width >= NARROW;
    const data = shown.map((s) => {
      const texts = s.texts.map((t) => (named ? `${t}  ${plain(s.label)}` : t));
      return { type: "bar", orientation: "h", y: chart.categories.map((c) => wrapped(c, width < NARROW ? 16 : 30)), x: s.values.map((v) => v ?? 0), text: texts, meta: s.label,
        textposition: "outside", cliponaxis: false, textfont: { color: css("--ink"), size: 12.5 }, marker: filling(s),
        customdata: s.texts, hovertemplate: `${wrapped(s.label, 40)}<br>%{y}: %{customdata}<extra></extra>` };
    });
    const tall = Math.max(...chart.categories.map((c) => wrap(c, width < NARROW ? 16 : 30).length));
    const height = 30 + chart.categories.length * (10 + Math.max(17 * tall, 24 * Math.max(1, shown.length)));
    const letters = Math.max(...shown.flatMap((s) => s.texts.map((t) => t.length + (named ? s.label.length + 2 : 0))), 4);
    const room = Math.min(0.8, (letters * 7.2 + 10) / Math.max(120, width - 60));
    return { data, layout: { ...layout(height, { l: 10, r: 8, t: 6, b: 8 }), barmode: "group", bargap: 0.16, bargroupgap: 0.1, hovermode: "closest",
      xaxis: axis({ range: [0, top / (1 - room)], showticklabels: false, fixedrange: true }),
      yaxis: axis({ autorange: "reversed", type: "category", fixedrange: true, ticksuffix: " ", tickfont: { color: css("--ink") } }) } };
  }

  function heat(chart, width) {
    const counted = chart.key === "split";
    const all = known(chart.values.flat());
    const root = (v) => (v === null ? null : counted ? Math.sqrt(v) : v);
    const high = counted ? Math.max(1, ...all, (6 * all.reduce((a, b) => a + b, 0)) / all.length) : Math.max(...all);
    const [zmin, zmax] = counted ? [0, Math.sqrt(high)] : [Math.min(...all), high];
    const cell = (width - 90) / chart.columns.length;
    const format = (v) => (v === null || (counted && v === 0) ? "" : chart.percent ? (100 * v).toFixed(0) : counted ? v.toFixed(0) : String(Number(v.toPrecision(3))));
    const written = cell >= (counted || chart.percent ? 19 : 32);
    const scale = [0, 1, 2, 3, 4].map((i) => [i / 4, css(`--heat${i}`)]);
    const what = chart.percent ? "%{customdata:.1%}" : counted ? "%{customdata:.0f} samples" : "%{customdata:.2f}";
    const where = chart.down ? `${chart.down} %{y}, ${chart.across} %{x}` : `%{y}, ${chart.across} %{x}`;
    const most = width < NARROW ? 14 : 30, lines = Math.max(...chart.rows.map((r) => wrap(r, most).length));
    const across = chart.columns.some((c) => c.length > 9) ? 14 : 9;
    const below = Math.max(...chart.columns.map((c) => wrap(c, across).length)) - 1;
    const height = 50 + 17 * below + Math.min(560 * lines, Math.max(24, 17 * lines, Math.min(34, 480 / chart.rows.length)) * chart.rows.length);
    const gap = cell > 14 ? 2 : 0;
    return { data: [{ type: "heatmap", z: chart.values.map((row) => row.map(root)), customdata: chart.values, zmin, zmax, colorscale: scale,
        x: chart.columns.map((_, i) => i), y: chart.rows.map((_, i) => i), text: chart.values.map((row) => row.map(format)), texttemplate: written ? "%{text}" : "",
        textfont: { size: Math.min(12, Math.max(9, cell / 2.6)) }, showscale: false, xgap: gap, ygap: gap, hoverongaps: false,
        hovertext: chart.values.map((row, r) => row.map((_, c) => where.replace("%{y}", plain(chart.rows[r])).replace("%{x}", plain(chart.columns[c])))),
        hovertemplate: `%{hovertext}<br>${what}<extra></extra>` }],
      layout: { ...layout(height, { l: 10, r: 8, t: 6, b: 36 }), hovermode: "closest",
        xaxis: axis({ title: { text: chart.across, standoff: 6, font: { size: 12.5 } }, fixedrange: true, tickangle: 0, ...ticks(chart.columns, Math.floor((width - 90) / (9 + 8 * Math.max(...chart.columns.map((c) => Math.min(across, c.length))))), across) }),
        yaxis: axis({ autorange: "reversed", fixedrange: true, ticksuffix: " ", title: { text: chart.down, standoff: 6, font: { size: 12.5 } }, ...ticks(chart.rows, 40, most) }) } };
  }

  function ticks(names, most, letters) {
    const every = Math.max(1, Math.ceil(names.length / Math.max(1, most)));
    const at = names.map((_, i) => i).filter((i) => i % every === 0);
    return { tickmode: "array", tickvals: at, ticktext: at.map((i) => wrapped(names[i], letters)) };
  }

  const makers = { lines, bars, heat };
  function draw() {
    for (const chart of charts) {
      const place = document.getElementById(`plot-${chart.key}`);
      const figure = makers[chart.kind](chart, place.clientWidth);
      Plotly.react(place, figure.data, figure.layout, { displayModeBar: false, responsive: false });
    }
  }

  root.classList.add("js");
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  let width = root.clientWidth, waiting;
  addEventListener("resize", () => {
    if (root.clientWidth === width) return;
    width = root.clientWidth;
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      for (const chart of charts) Plotly.purge(`plot-${chart.key}`);  // a drawn chart would keep its old width
      draw();
    }, 120);
  });
  for (const button of document.querySelectorAll(".legend button")) {
    button.addEventListener("click", () => {
      const label = button.dataset.label, off = hidden.has(label);
      if (off) hidden.delete(label); else hidden.add(label);
      button.setAttribute("aria-pressed", String(off));
      draw();
    });
  }
})();
