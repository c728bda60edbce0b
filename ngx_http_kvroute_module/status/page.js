/* --- servers */

/* errors of the last minute, as a share of its requests */

const errors = (p) => p.minute && p.minute.errors
  ? Math.min(1, p.minute.errors / Math.max(1, p.minute.requests)) : 0;

/* how bad the state of a server is, for sorting */

const wrong = (p) => (p.state === "up" ? 0
    : p.state === "draining" || p.state === "drained" ? 1 : 4)
  + (errors(p) >= .05 ? 2 + errors(p) : 0)
  + (causesOf(p).length ? 1 : 0);

/* the causes that name a server */

const causesOf = (p) => !last ? [] : health(last).why.filter((w) =>
  (w.servers || []).some((s) => s.name === p.name)).map((w) => w.code);

const health = (s) => {
  const u = s.upstreams[$("upstream").value];
  return u && u.health ? u.health : { state: "green", why: [] };
};

/* adds the age of old metrics */

const aged = (text, p) => p.engine.age_ms > 10000
  ? `${text} (${time(Math.round(p.engine.age_ms / 1000))} ago)` : text;

/* KV events: state, lost messages, and the age of the last one */

const heard = (e) => e.state + (e.lost ? `, ${count(e.lost)} lost` : "")
  + (e.age_ms > 5000 ? ` (${time(Math.round(e.age_ms / 1000))} ago)` : "");

const columns = [
  { key: "name", title: "server", get: (p) => p.name },
  { key: "state", title: "state", get: (p) => p.state, state: true,
    show: (v, p) => v === "up"
      ? v + (p.reason === "silent" ? ": " + said(p) : "") : shown(v)
      + (p.since ? " " + age(p.since, Date.parse(last.timestamp)) : "")
      + (v === "draining" && p.drain ? `: ${p.drain.sessions} sessions`
        : p.reason ? ": " + said(p) : ""),
    hint: (p) => (p.since ? `since ${p.since}` : "")
      + (p.reason ? `, last error: ${said(p)}` : "")
      + (p.ejected ? `, tried again in ${Math.ceil(p.ejected.for)} s` : "") },
  { key: "errors", title: "errors / min", num: true, get: errors,
    show: (v, p) => v ? `${count(p.minute.errors)} (${share(v, 1)})` : "0",
    bad: (v) => v >= .05 },
  { key: "4xx", title: "4xx / min", num: true,
    get: (p) => p.minute ? p.minute.errors_4xx : 0, show: count },
  { key: "5xx", title: "5xx", num: true, rare: true,
    get: (p) => p.responses ? p.responses["5xx"] : 0, show: count },
  { key: "fails", title: "fails", num: true, rare: true, get: (p) => p.fails || 0,
    show: count },
  { key: "active", title: "active", get: (p) => p.active, bar: String,
    least: 8 },
  { key: "pending", title: "pending", rare: true, get: (p) => p.pending || 0,
    bar: bytes, least: 1 << 18 },
  { key: "load", title: "load", num: true,
    get: (p) => p.load && p.load.utilization !== undefined
      ? p.load.utilization : null,
    show: (v) => v === null ? "–" : share(v, 1) },
  { key: "rate", title: "requests / s", num: true, get: (p, o, s) =>
      o ? delta(p.requests || 0, o.requests || 0) / s : null, show: rate },
  { key: "ttft", title: "TTFT", num: true,
    get: (p) => (p.minute || {}).ttft_stream || (p.minute || {}).ttft_window
      || null, show: time,
    bad: (v, p) => causesOf(p).some((c) => c === "slow" || c === "starved"),
    hint: (p) => `since start ${time(p.ttft_stream)}` },
  { key: "cached", title: "matched share", num: true,
    get: (p) => p.prompt_bytes ? p.matched_bytes / p.prompt_bytes : null,
    show: (v, p) => share(p.matched_bytes, p.prompt_bytes) },
  { key: "regret", title: "regret", num: true, rare: true,
    get: (p) => p.prompt_bytes
      ? (p.best_bytes - p.matched_bytes) / p.prompt_bytes : null,
    show: (v, p) => share(p.best_bytes - p.matched_bytes, p.prompt_bytes) },
  { key: "kv", title: "KV use", num: true,
    get: (p) => p.engine && p.engine.kv_usage !== undefined
      ? p.engine.kv_usage : null,
    show: (v, p) => v === null ? "–" : aged(share(v, 1), p),
    hint: (p) => p.capacity_source === undefined ? ""
      : `its cache is taken to hold ${bytes(p.capacity_bytes)} of prompts: `
        + sources[p.capacity_source] },
  { key: "engine", title: "running / waiting", num: true,
    get: (p) => p.engine && p.engine.running !== undefined
      ? p.engine.running + (p.engine.waiting || 0) : null,
    show: (v, p) => v === null ? "–" : aged(p.engine.waiting === undefined
      ? String(p.engine.running)
      : p.engine.running + " / " + p.engine.waiting, p) },
  { key: "events", title: "KV events", get: (p) => p.events ? p.events.state
      : null, show: (v, p) => v === null ? "–" : heard(p.events),
    bad: (v) => v === "off" || v === "stale" },
  { key: "delivered", title: "cache hits as predicted", num: true, rare: true,
    get: (p) => p.cache && p.cache.predicted_tokens
      ? p.cache.delivered_tokens / p.cache.predicted_tokens : null,
    show: (v) => v === null ? "–" : share(v, 1) }
];

const rows = new Map();

const drawHead = () => {
  const tr = $("peers").tHead.rows[0];
  for (const c of columns) {
    const th = make("th", undefined, c.num ? "num" : "");
    const b = make("button", c.title);
    th.scope = "col";
    th.dataset.key = c.key;
    if (c.rare) th.dataset.rare = "";
    explain(th, c.title);
    b.addEventListener("click", () => {
      sort = { key: c.key, down: sort.key === c.key ? !sort.down : !!c.num };
      if (last) draw();
    });
    th.append(b);
    tr.append(th);
  }
};

const row = (name) => {
  const tr = document.createElement("tr");
  tr.cells_ = columns.map((c) => {
    const td = make("td", undefined, c.num ? "num" : "");
    td.dataset.label = c.title;
    td.dataset.key = c.key;
    if (c.rare) td.dataset.rare = "";
    if (c.bar) {
      const bar = make("div", undefined, "bar");
      td.fill = make("i");
      td.text = make("span");
      bar.append(td.fill, td.text);
      td.append(bar);
    } else if (c.state) {
      td.text = make("span", undefined, "state");
      td.append(td.text);
    } else {
      td.text = td;
    }
    tr.append(td);
    return td;
  });
  tr.dataset.name = name;

  /* an action needs the button and a confirmation */

  tr.act = make("button");
  tr.act.hidden = true;
  tr.act.addEventListener("click", () => act(tr.act.dataset.act, name));
  tr.cells_[1].append(" ", tr.act);
  return tr;
};

const act = async (what, name) => {
  if (!confirm(`${what} ${name}?`)) return;
  try {
    const r = await fetch(last.api.replace(/\/?$/, "/") + what + "?peer="
      + encodeURIComponent(name), { method: "POST" });
    if (!r.ok) throw new Error(`${r.status}`);
    set($("error"), "");
  } catch (e) {
    set($("error"), `could not ${what} ${name}: ${e.message}`);
  }
};

const drawPeers = (u, then, seconds) => {
  const body = $("peers").tBodies[0];
  $("peers").classList.toggle("few", !$("all").checked);
  $("peers").classList.toggle("deaf", !u.peers.some((p) => p.events));
  const old = new Map(then ? then.peers.map((p) => [p.name, p]) : []);
  const col = columns.find((c) => c.key === sort.key);
  const times = new Map();              /* a server may be given twice */
  const list = u.peers.map((p, i) => ({
    p, id: p.name + "#" + times.set(p.name, (times.get(p.name) || 0) + 1)
                               .get(p.name),
    i, v: columns.map((c) => c.get(p, old.get(p.name), seconds)) }));
  const at = columns.indexOf(col);
  const asked = $("search").value.trim().toLowerCase();
  const max = columns.map((c, k) =>
    c.bar ? Math.max(c.least, ...list.map((x) => x.v[k])) : 0);

  const all = list.length;
  const left = list.filter((x) => x.p.name.toLowerCase().includes(asked)
    && (!$("problems").checked || wrong(x.p) > 0));
  list.splice(0, all, ...left);
  set($("left"), left.length < all ? `${left.length} of ${all}` : "");

  list.sort((a, b) => {
    if (!col) return wrong(b.p) - wrong(a.p)
      || a.p.name.localeCompare(b.p.name, undefined, { numeric: true });
    const x = a.v[at], y = b.v[at];
    const n = x === y ? a.i - b.i
            : x === null ? 1 : y === null ? -1
            : typeof x === "string"
              ? x.localeCompare(y, undefined, { numeric: true }) : x - y;
    return x === y || x === null || y === null ? n : sort.down ? -n : n;
  });

  const seen = new Set();
  list.forEach((x, n) => {
    seen.add(x.id);
    if (!rows.has(x.id)) rows.set(x.id, row(x.p.name));
    const tr = rows.get(x.id);
    columns.forEach((c, k) => {
      const td = tr.cells_[k], v = x.v[k];
      const text = c.bar ? c.bar(v) : c.show ? c.show(v, x.p) : v;
      set(td.text, c.key === "name" && x.p.backup ? text + " (backup)" : text);
      if (c.bar) td.fill.style.width = 100 * v / max[k] + "%";
      if (c.state)
        td.text.className = "state " + (v === "up" && wrong(x.p) ? "wary" : v);
      if (c.bad) td.classList.toggle("wrong", c.bad(v, x.p));
      if (c.hint) td.title = c.hint(x.p);
    });
    const action = x.p.state === "draining" ? "undrain" : "drain";
    tr.act.hidden = !last.api || x.p.id === undefined
                    || x.p.state === "down";
    tr.act.dataset.act = action;
    set(tr.act, action);
    if (body.rows[n] !== tr) body.insertBefore(tr, body.rows[n] || null);
  });

  for (const [id, tr] of rows)
    if (!seen.has(id)) { tr.remove(); rows.delete(id); }

  [...$("peers").tHead.rows[0].cells].forEach((th, k) => {
    if (columns[k].key === sort.key)
      th.setAttribute("aria-sort", sort.down ? "descending" : "ascending");
    else
      th.removeAttribute("aria-sort");
  });
};

/* --- tiles */

const tiles = (box, list) => drawList(box, list, () => {
  const e = make("div", undefined, "tile");
  e.append(make("span", undefined, "soft"), make("b"),
           make("span", undefined, "soft"));
  return e;
}, (e, [title, value, more]) => {
  [title, value, more || ""].forEach((v, k) => set(e.children[k], v));
  e.dataset.title = title;
  explain(e, title.replace(/^.*: /, ""));
});

const drawFleet = (u, prev, first, seconds, span) => {
  const states = {};
  for (const p of u.peers)
    states[shown(p.state)] = (states[shown(p.state)] || 0) + 1;
  const d = (key) => first ? delta(total(u, key), total(first, key))
                           : total(u, key);
  const prompt = d("prompt_bytes"), matched = d("matched_bytes");
  const base = first || null;
  const load = u.peers.filter((p) => p.load && p.load.utilization !== undefined)
    .map((p) => p.load.utilization);
  const mean = load.length ? load.reduce((a, b) => a + b, 0) / load.length : -1;
  const q = (h, x) => quantile(u[h], base && base[h], x);
  const hot = u.peers.reduce((a, p) => !a || p.active > a.active ? p : a, null);

  tiles($("tiles"), [
    ["servers", String(u.peers.length),
     Object.entries(states).map(([s, n]) => `${n} ${s}`).join(", ")],
    ["not computed", u.saved ? count(u.saved.tokens) + " tokens" : "–",
     u.saved ? `${share(u.saved.share, 1)} of prompts`
       + (u.saved.round_robin_share === undefined ? "" : "; any server: "
          + share(u.saved.round_robin_share, 1)) : ""],
    ["prefill saved", u.saved && u.saved.seconds
       ? count(u.saved.seconds) + " s" : "–", u.saved && !u.saved.seconds
       ? "not known yet" : "of an engine, since start"],
    ["hottest server", hot && hot.active ? hot.name : "–",
     hot && hot.active ? `${hot.active} in flight` : "none in flight"],
    ["requests / s", prev ? rate(delta(total(u, "requests"),
       total(prev, "requests")) / seconds) : "–",
     count(total(u, "requests")) + " in total"],
    ["active", count(total(u, "active")), ""],
    ["pending", bytes(total(u, "pending")), "prompt bytes waiting"],
    ["load", mean < 0 ? "–" : share(mean, 1), mean < 0 ? "not known yet"
       : `busiest ${share(Math.max(...load), 1)}`],
    ["matched share", share(matched, prompt), span],
    ["regret", share(d("best_bytes") - matched, prompt), span],
    ["TTFT median", time(q("ttft_stream", .5)),
     "P95 " + time(q("ttft_stream", .95)) + ", of streams"],
    ["decision P99", time(q("decision_time", .99)), span]
  ]);
};

/* --- how many hosts route as one */

const hostsOf = (z) => !z || !z.share ? ""
  : !z.share.up ? "alone: sharing fails, "
  : `one of ${z.share.others + 1} hosts, `;

/* --- which pool its servers are, of prefill and decode */

const poolOf = (u) => (u.prefill
    ? `decode servers, prefill by ${u.prefill.join(", ")}; ` : "")
  + (u.decode ? `prefill servers of ${u.decode.join(", ")}; ` : "");

const optionOf = ([name, u]) => name + (u.prefill ? " (decode)" : "")
  + (u.decode ? " (prefill)" : "");

/* --- all of it */

const draw = () => {
  const s = last, name = $("upstream").value, u = s.upstreams[name];
  if (!u) return;
  const list = past.get(name) || [];
  const now = list[list.length - 1], prev = list[list.length - 2];
  const first = list.length > 1 ? list[Math.max(0, list.length - 61)] : null;
  const seconds = prev ? Math.max(.001, (now.t - prev.t) / 1000) : 1;
  const span = first ? `the last ${Math.round((now.t - first.t) / 1000)} s`
                     : "since start";

  set($("about"), (u.shadow_requests === undefined ? "" : "shadow: ")
    + poolOf(u) + hostsOf(s.zones[u.zone])
    + `${u.policy}, nginx ${s.nginx_version}, `
    + `kvroute ${s.version}`);
  drawHealth(u, first && first.u, span);
  drawFleet(u, prev && prev.u, first && first.u, seconds, span);
  drawPeers(u, prev && prev.u, seconds);
  drawShadow(u, first && first.u, span);
  drawLegs(s, u, first && first.u, span);
  drawTally(u, first && first.u, span);
  drawQueue(u, first && first.u);
  drawHistory(u);
  drawWhatif(u);
  drawChart(u);
  drawReceipts(s, name);
  drawZones(s, u);
  drawSignals(s, u);
};

const take = (s) => {
  const select = $("upstream"), names = Object.keys(s.upstreams);
  const t = Date.parse(s.timestamp);

  const titles = Object.entries(s.upstreams).map(optionOf);

  if ([...select.options].map((o) => o.text).join("\n") !== titles.join("\n")) {
    const chosen = select.value || decodeURIComponent(location.hash.slice(1));
    select.replaceChildren(...names.map((n, i) => new Option(titles[i], n)));
    const worst = s.health && s.health.why[0] && s.health.why[0].upstream;
    select.value = [chosen, worst, ...names].find((n) => names.includes(n));
  }
  for (const n of names) {
    const list = past.get(n) || [];
    if (list.length && list[list.length - 1].t > t) list.length = 0;
    list.push({ t, u: s.upstreams[n] });
    while (list.length && t - list[0].t > keep * 1000) list.shift();
    past.set(n, list);
  }
  last = s;
};

const poll = async () => {
  if (!paused && !document.hidden) {
    try {
      const r = await fetch(source, { cache: "no-store",
        signal: AbortSignal.timeout(5000) });
      if (!r.ok) throw new Error(`${r.status} from ${source}`);
      take(await r.json());
      draw();
      set($("error"), "");
      set($("state"), "live " + last.timestamp.slice(11, 19) + " UTC");
    } catch (e) {
      set($("error"), "no status: " + e.message);
      set($("state"), last ? "last known at "
        + last.timestamp.slice(11, 19) + " UTC" : "");
    }
  }
  setTimeout(poll, 1000);
};

const pause = () => {
  paused = !paused;
  $("pause").setAttribute("aria-pressed", paused);
  set($("pause"), paused ? "resume" : "pause");
};

$("pause").addEventListener("click", pause);
$("upstream").addEventListener("change", () => {
  location.hash = encodeURIComponent($("upstream").value);
  rows.forEach((tr) => tr.remove());
  rows.clear();
  if (last) draw();
});
document.addEventListener("keydown", (e) => {
  if (e.target.closest("select, input") || e.ctrlKey || e.metaKey || e.altKey)
    return;
  if (e.key === "p") pause();
});
for (const id of ["problems", "all", "search", "by"])
  $(id).addEventListener("input", () => { if (last) draw(); });
addEventListener("resize", () => { if (last) draw(); });

document.querySelectorAll("th").forEach((th) => explain(th, th.textContent));
drawHead();
poll();
