/* --- bars over time */

const colour = (name) => getComputedStyle(document.documentElement)
  .getPropertyValue(name).trim();

/* draws bars of stacked parts, [value per second, colour]; age: steps before the
   right edge */

const drawBars = (id, steps, bars, unit = (max) => rate(max) + " / s") => {
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
  ctx.fillText(unit(max), 4, 11);
  for (const b of bars)
    if (b.label) ctx.fillText(b.label, w - (b.age + .7) * step, h - 4);
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

/* answers that broke: continued elsewhere, moved by a drain, or cut */

const unbroken = (u, base, span) => {
  if (!u.continued) return null;
  const by = (key) => Object.entries(u[key] || {}).map(([k, n]) =>
    [k, delta(n, base && base[key] ? base[key][k] || 0 : 0)])
    .filter(([, n]) => n);
  const sum = (list) => list.reduce((n, [, v]) => n + v, 0);
  const said = (list) => list.map(([k, n]) => `${k} ${count(n)}`).join(", ");
  const all = by("continued"), cut = by("cut");
  const moved = all.filter(([k]) => k === "moved");
  const broke = all.filter(([k]) => k !== "moved");

  const parts = [
    ...(broke.length ? [`${count(sum(broke))} answers broke and were continued `
      + `by other servers (${said(broke)})`] : []),
    ...(moved.length ? [`${count(sum(moved))} streams were moved to other `
      + "servers by a drain"] : []),
    ...(cut.length ? [`${count(sum(cut))} answers broke and were cut `
      + `(${said(cut)})`] : [])];

  return parts.length === 0 ? null : { code: cut.length ? "cut" : "continued",
    text: `${parts.join("; ")}, ${span}`, since: "",
    todo: cut.length ? "check why these could not be continued" : "" };
};

const full = (z, now) => z && z.full_since ? [{ code: "index",
  text: "the index is full and forgets what engines may still hold",
  since: sinceOf({ since: z.full_since }, now),
  todo: "write a larger zone= in kvroute_zone" }] : [];

/* a cause in the elements of its box: the sentence, since when, what to do */

const drawCause = ([text, since, todo, row], w) => {
  set(text, w.text);
  set(since, w.since && `${w.since}. `);
  set(todo, w.todo && `Do: ${w.todo}.`);
  set(row, w.todo && "runbook");
  if (w.todo) row.setAttribute("href", `#incident-${w.code}`);
};

const drawHealth = (u, base, span) => {
  const v = health(last), now = Date.parse(last.timestamp);
  const more = unbroken(u, base, span);
  const why = v.why.map((w) => ({ code: w.code, text: sentence(w),
    since: sinceOf(w, now), todo: advise(w) }));
  const sum = (k) => u.peers.reduce((n, p) =>
    n + (p.minute ? p.minute[k] : 0), 0);
  const up = u.peers.filter((p) => p.state === "up").length;

  $("health").className = v.state;
  drawCause(["verdict", "since", "todo", "row"].map($), why.length ? why[0] : { text: `working: ${up} of ${u.peers.length} servers up, `
      + `${count(sum("requests"))} requests in the last minute, `
      + `${count(sum("errors"))} errors`, since: "", todo: "" });
  document.title = v.state === "green" ? "kvroute"
                                       : `${v.state}: ${why[0].text} – kvroute`;
  drawList($("why"), [...why.slice(1), ...(more ? [more] : []),
    ...full(last.zones[u.zone], now), ...(u.resumes ? [{ text: u.resumes.text, since: "", todo: "" }] : [])],
    () => {
      const li = make("li");
      li.append(make("span"), make("span", "", "soft"), make("span"),
                make("a"));
      return li;
    }, (li, w) => drawCause(li.children, w));
};

/* --- what another fleet would bring */

const drawWhatif = (u) => {
  const f = u.whatif;

  $("more").hidden = !f;
  if (!f) return;

  const one = (text, e) => e ? [`${text}: cached ${share(f.now.cached, 1)} to `
    + `${share(e.cached, 1)} (${share(e.cached_low, 1)} to `
    + `${share(e.cached_high, 1)})` + (e.ttft_p95 === undefined ? ""
      : `, TTFT P95 ${time(f.now.ttft_p95)} to ${time(e.ttft_p95)} `
        + `(${time(e.ttft_p95_low)} to ${time(e.ttft_p95_high)})`)] : [];

  set($("said"), [...one("One more engine", f.one_more),
    ...one("one less", f.one_less),
    ...one("twice the cache each", f.twice),
    ...one("host memory of 4 times the cache", f.host_4)].join("; ") + ".");

  drawBars("curve", f.curve.length, f.curve.map((x, i) => ({
    age: f.curve.length - 1 - i, label: `${x.capacity}×`,
    parts: [[x.cached, x.capacity === 1 ? "--accent" : "--bar"]] })),
    (max) => share(max, 1));
};
