/* where the JSON is: beside the page, unless ?json=/path says otherwise */

const source = (() => {
  const asked = new URLSearchParams(location.search).get("json");
  const url = new URL(asked || "json", location.href);
  return url.origin === location.origin ? url.href : "json";
})();

const keep = 120;                       /* seconds of history */
const past = new Map();                 /* by upstream: [{t, u}] */
let last = null, paused = false, sort = { key: "wrong", down: true };

const $ = (id) => document.getElementById(id);

const make = (name, text, cls) => {
  const e = document.createElement(name);
  if (text !== undefined) e.textContent = text;
  if (cls) e.className = cls;
  return e;
};

const set = (e, text) => { if (e.textContent !== text) e.textContent = text; };

/* --- numbers for people */

const bytes = (n) => {
  if (!(n >= 0)) return "–";
  for (const u of ["B", "KB", "MB", "GB", "TB"]) {
    if (n < 1000 || u === "TB")
      return (u === "B" || n >= 100 ? n.toFixed(0) : n.toFixed(1)) + " " + u;
    n /= 1024;
  }
};

const count = (n) => n >= 1e6 ? (n / 1e6).toFixed(1) + " M"
                   : n >= 1e4 ? (n / 1e3).toFixed(1) + " k" : String(n);

const rate = (n) => n === null ? "–" : n >= 10 ? n.toFixed(0) : n.toFixed(1);

const share = (a, b) => b > 0 ? (100 * a / b).toFixed(1) + "%" : "–";

const time = (s) => s === null || s === undefined ? "–"
                  : s >= 10 ? s.toFixed(1) + " s"
                  : s >= 1 ? s.toFixed(2) + " s"
                  : s >= 1e-3 ? (s * 1e3).toFixed(0) + " ms"
                  : (s * 1e6).toFixed(0) + " µs";

/* counters may be reset: what goes down starts anew */

const delta = (now, then) => now >= then ? now - then : now;

const total = (u, key) => u.peers.reduce((n, p) => n + (p[key] || 0), 0);

/* the value below which a share q of a histogram's new observations lies */

const quantile = (now, then, q) => {
  if (!now) return null;
  const old = then && then.count <= now.count ? then : { count: 0, buckets: {} };
  const all = now.count - old.count;
  if (all <= 0) return null;
  const bounds = Object.keys(now.buckets).filter((k) => k !== "+Inf")
    .map(Number).sort((a, b) => a - b);
  let low = 0, before = 0;
  for (const b of bounds) {
    const n = now.buckets[b] - (old.buckets[b] || 0);
    if (n >= q * all)
      return n > before ? low + (b - low) * (q * all - before) / (n - before)
                        : b;
    low = b;
    before = n;
  }
  return low;
};

