/* --- bars over time */

const colour = (name) => getComputedStyle(document.documentElement)
  .getPropertyValue(name).trim();

/* draws bars of stacked parts, [value per second, colour]; age: steps before the
   right edge */

const drawBars = (id, steps, bars) => {
  const canvas = $(id), ctx = canvas.getContext("2d");
  const dpr = devicePixelRatio || 1;
  const w = canvas.clientWidth, h = canvas.clientHeight, step = w / steps;
  const max = Math.max(.1, ...bars.map((b) =>
    b.parts.reduce((n, [v]) => n + v, 0)));

  canvas.width = w * dpr;               /* clears it */
  canvas.height = h * dpr;
  ctx.scale(dpr, dpr);

  for (const b of bars) {
    let y = h;
    for (const [v, name] of b.parts) {
      const dy = v / max * (h - 14);
      ctx.fillStyle = colour(name);
      ctx.fillRect(w - (b.age + 1) * step, y - dy, Math.max(1, .9 * step), dy);
      y -= dy;
    }
  }
  ctx.fillStyle = getComputedStyle(document.body).color;
  ctx.font = "11px system-ui, sans-serif";
  ctx.fillText(rate(max) + " / s", 4, 11);
};

/* --- decisions over time */

const colours = new Map();
const colourOf = (name) => {
  if (!colours.has(name)) colours.set(name, colours.size % 8);
  return "--c" + colours.get(name);
};

const drawChart = (u) => {
  const list = past.get($("upstream").value) || [];
  const end = list.length ? list[list.length - 1].t : 0;
  const sums = new Map();

  drawBars("chart", keep, list.slice(1).map((now, i) => {
    const old = list[i];
    const s = Math.max(.001, (now.t - old.t) / 1000);
    const parts = Object.entries(now.u.decisions).filter(([, n]) => n).sort()
      .map(([k, n]) => {
        const d = delta(n, old.u.decisions[k] || 0);
        sums.set(k, (sums.get(k) || 0) + d);
        return [d / s, colourOf(k)];
      });
    return { age: (end - now.t) / 1000, parts };
  }));

  const shown = sums.size ? [...sums].sort()
    : Object.entries(u.decisions).filter(([, n]) => n);
  const sum = shown.reduce((n, [, v]) => n + v, 0);

  drawList($("legend"), shown, () => {
    const e = make("span");
    e.append(make("i"), make("span"));
    return e;
  }, (e, [k, n]) => {
    e.dataset.reason = k;
    e.children[0].style.background = `var(${colourOf(k)})`;
    set(e.children[1], `${k} ${share(n, sum)} (${count(u.decisions[k])})`);
  });
};

/* --- the history that nginx keeps: the same for all browsers */

const drawHistory = (u) => {
  const list = u.history || [], now = list[list.length - 1];
  const end = Date.parse(last.timestamp);

  drawBars("history", 61, list.map((x) => {
    const bad = Math.min(x.errors, x.requests);
    return { age: (end - Date.parse(x.time)) / 10000,
      parts: [[bad / 10, "--bad"], [x.rejects / 10, "--warn"],
              [(x.requests - bad) / 10, "--accent"]] };
  }));
  set($("span"), !now ? "the first step takes 10 s" : `${list.length} steps; `
    + `in the last one ${now.requests} requests, ${now.errors} errors, `
    + `${now.rejects} rejected, TTFT median ${time(now.ttft_p50)}, P95 `
    + time(now.ttft_p95));
};

const drawHealth = (u) => {
  const v = health(last), why = v.why.map(sentence);
  const sum = (k) => u.peers.reduce((n, p) =>
    n + (p.minute ? p.minute[k] : 0), 0);
  const up = u.peers.filter((p) => p.state === "up").length;

  $("health").className = v.state;
  set($("verdict"), why.length ? why[0]
    : `working: ${up} of ${u.peers.length} servers up, `
      + `${count(sum("requests"))} requests in the last minute, `
      + `${count(sum("errors"))} errors`);
  document.title = v.state === "green" ? "kvroute"
                                       : `${v.state}: ${why[0]} – kvroute`;
  drawList($("why"), why.slice(1).concat(u.resumes ? u.resumes.text : []),
    () => make("li"), set);
};
